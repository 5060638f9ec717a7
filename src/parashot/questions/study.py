"""The whole study, analysed once: what the report, the command line and results/summary.json show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from parashot.params import Params
from parashot.parsing import Value
from parashot.questions.accuracy.rows import AccuracyComparison, compare_precisions, comparisons
from parashot.questions.advice import Advice
from parashot.questions.batchsz.rows import BatchszRow, SizeRow, batchsz_rows, noise_scale, size_rows
from parashot.questions.claim import Claim, UntestableError
from parashot.questions.gain.claims import ALL_OF_IT
from parashot.questions.gain.records import USUAL
from parashot.questions.ledger import CLAIMS, SPEED, advise
from parashot.questions.loader.rows import LoaderRow, loader_rows
from parashot.questions.results import StudyResults
from parashot.questions.scaling.rows import CheckedRow, Predictor, ScalingRow, checked_rows, shown_rows
from parashot.questions.statistics import Interval, Ranking, Rounds
from parashot.questions.step.rows import StepRow, step_rows
from parashot.questions.strategies.rows import BASE, StrategyRow, strategy_rows
from parashot.questions.text import as_sentences, listed
from parashot.questions.ways.records import PLAIN_LOADER, EpisodeWay
from parashot.questions.ways.rows import WayRow, way_rows
from parashot.train.records import TrainResult

T = TypeVar("T")

LONG_RUN_EPISODES = 200_000
"""Below this many training episodes a run is short, and its accuracy is not comparable with published ones:
LibFewShot trains a Relation Network for 100 epochs of 2000 episodes; the study used ten times as many."""


@dataclass(frozen=True)
class Study:
    """Measurements, rows, claims and advice. A part that was not measured is empty or None.

    Claims are judged, and advice is given, by a study that holds everything but these two.
    """

    params: Params
    results: StudyResults
    loading: tuple[WayRow[EpisodeWay], ...]  # ways of loading, in the step
    loader: tuple[LoaderRow, ...]  # of loading alone
    strategies: Mapping[str, StrategyRow]  # by variant
    gain: tuple[WayRow[EpisodeWay], ...]  # the default way and the advised one; none if others were measured
    batchsz: Mapping[int, BatchszRow]  # by size: the study's experiment
    sizes: tuple[SizeRow, ...]  # accuracy in the same time
    noise_scale: Interval | None  # of gradients, in episodes
    step: tuple[StepRow, ...]
    accuracy: tuple[AccuracyComparison, ...]
    predictor: Predictor | None
    scaling: tuple[ScalingRow, ...]
    checked: tuple[CheckedRow, ...]
    claims: tuple[Claim, ...] = ()
    advice: tuple[Advice, ...] = ()

    @property
    def answer(self) -> str:
        """The study's answer in a few short sentences, the last of which names what is not decided."""
        return " ".join(filter(None, self.answer_in_two))

    @property
    def answer_in_two(self) -> tuple[str, str]:
        """The answer's sentences on speed, which lead, and those on batch size, accuracy and what is open."""
        told = [each for each in self.advice if each.phrase]
        if not told:
            return "Nothing was measured yet: run `dvc repro`.", ""
        speed = [each.phrase for each in told if each.topic in SPEED]
        further = [each.phrase for each in told if each.topic not in SPEED]
        if undecided := [each.topic for each in told if not each.decided]:
            further.append(f"undecided: {listed(undecided)}")
        return as_sentences(speed), as_sentences(further)

    @property
    def settings(self) -> dict[str, Value]:
        """Keys of params.yaml, with their values, that follow all of the advice."""
        return {key: value for each in self.advice for key, value in each.settings.items()}

    @property
    def changes(self) -> dict[str, str]:
        """What would change the advice, by topic."""
        return {each.topic: each.changes for each in self.advice if each.changes}

    @property
    def synthetic(self) -> bool:
        """True if the images were drawn by a program."""
        return self.params.data.source == "synthetic"

    @property
    def short_run(self) -> bool:
        """True if the trainings are too short to compare their accuracies with published ones."""
        return self.params.train.episodes < LONG_RUN_EPISODES

    @property
    def confidence(self) -> float:
        """Of all intervals."""
        return self.params.claims.confidence

    def rank(self, seconds: Mapping[T, Rounds]) -> Ranking[T]:
        """Compare settings, by round, with the fastest."""
        return Ranking.by_time(seconds, self.confidence, self.params.claims.time_margin)

    def why_missing(self, part: str) -> str:
        """Say why a part of the results is not there."""
        return self.results.missing.get(part, f"results/{part} is missing; run `dvc repro` to make it")

    def trained(self, name: str) -> TrainResult:
        """Return the finished training of a strategy. Raises `UntestableError`."""
        training = self.results.training.get(name)
        if training is None:
            raise UntestableError(self.why_missing(f"train/{name}"))
        if training.result.status != "ok":
            raise UntestableError(f"{name} was {training.result.status}: {training.result.reason}")
        return training.result

    def comparison(self, first: str, second: str) -> AccuracyComparison | None:
        """Return the comparison of two trainings' accuracies, if there is one."""
        pair = (first, second)
        return next((each for each in self.accuracy if (each.first, each.second) == pair), None)

    def is_worse(self, first: str, second: str) -> bool:
        """Whether trainings show the first to be less accurate than the second by more than the margin."""
        outcome = self.comparison(first, second)
        return outcome is not None and outcome.is_worse


def without_other_sizes(results: StudyResults, baseline: int) -> StudyResults:
    """The results without those of batch sizes, where these hold none of the size `baseline`."""
    sizes = results.batchsz
    if sizes is None or not sizes.trainings or baseline in {each.batchsz for each in sizes.trainings}:
        return results
    reason = f"results/batchsz has no size {baseline} (batchsz_study.baseline); run `dvc repro` to make it"
    return replace(results, batchsz=None, missing={**results.missing, "batchsz": reason})


def analyse(results: StudyResults, params: Params) -> Study:
    """Make every row, claim and piece of advice. Raises `RecordError` where a file holds too little."""
    confidence, knobs = params.claims.confidence, params.batchsz_study
    results = without_other_sizes(results, knobs.baseline)
    tune, loader, bench = results.tune, results.loader, results.strategies
    sizes, gain, baseline = results.batchsz, results.gain, knobs.baseline
    loading = tuple(way_rows(loader.ways, loader.training, PLAIN_LOADER.name, confidence)) if loader else ()
    predictor = Predictor.of(bench, confidence) if bench and bench.cost_steps else None
    checked = tuple(checked_rows(predictor, bench)) if predictor and bench else ()
    strategies = {row.variant: row for row in strategy_rows(bench, results.training, confidence)}
    precisions = compare_precisions(sizes, params) if sizes else []
    equal = [name for name, row in strategies.items() if row.same_algorithm]
    study = Study(
        params=params,
        results=results,
        loading=loading,
        loader=tuple(loader_rows(loader.blocks, confidence)) if loader else (),
        strategies=strategies,
        gain=tuple(way_rows(gain.ways, gain.blocks, USUAL, confidence)) if gain else (),
        batchsz={row.batchsz: row for row in batchsz_rows(sizes, baseline, confidence)} if sizes else {},
        sizes=tuple(size_rows(sizes.trainings, baseline, knobs.target, confidence)) if sizes else (),
        noise_scale=noise_scale(sizes.gradients, confidence) if sizes else None,
        step=tuple(step_rows(tune.blocks, tune.choices, confidence)) if tune else (),
        accuracy=(*comparisons(results.training, BASE, params.claims, equal), *precisions),
        predictor=predictor,
        scaling=tuple(shown_rows(predictor, checked)) if predictor else (),
        checked=checked,
    )
    advice, claims = advise(study), tuple(each.judge(study) for each in CLAIMS)
    is_of_advice = any(each.topic == ALL_OF_IT and each.choice for each in advice)
    return replace(study, claims=claims, advice=advice, gain=study.gain if is_of_advice else ())
