"""The whole study, analysed once: what the report, the command line and results/summary.json show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parashot.params import Params
from parashot.questions.accuracy.compare import AccuracyComparison, compare
from parashot.questions.accuracy.confused import ConfusionRow, worst_confusions
from parashot.questions.accuracy.records import EvaluateResult
from parashot.questions.accuracy.tasks import TaskRow, task_rows
from parashot.questions.accuracy.time_to_accuracy import TimeToAccuracy, time_to_accuracy
from parashot.questions.advice import advise, answer
from parashot.questions.advised import Advice
from parashot.questions.batchsz.rows import BatchszRow
from parashot.questions.evidence import Evidence
from parashot.questions.ledger import Claim, judge_claims
from parashot.questions.loader.rows import LoaderRow
from parashot.questions.results import StudyResults
from parashot.questions.scaling.rows import CheckedRow, Predictor, ScalingRow, checked_rows, shown_rows
from parashot.questions.step.rows import StepRow, step_rows
from parashot.questions.strategies.rows import BASE, StrategyRow
from parashot.records import Hardware
from parashot.train.records import Choices, PretrainResult

LONG_RUN_EPISODES = 200_000
"""Below this many training episodes a run is short, and its accuracy is not comparable with published ones:
LibFewShot trains a Relation Network for 100 epochs of 2000 episodes; the study used ten times as many."""


@dataclass(frozen=True)
class Study:
    """Measurements, rows, claims and advice. A part that was not measured is empty or None."""

    params: Params
    results: StudyResults
    loader: tuple[LoaderRow, ...]
    strategies: Mapping[str, StrategyRow]  # by variant
    batchsz: Mapping[int, BatchszRow]  # by size
    step: tuple[StepRow, ...]
    accuracy: tuple[AccuracyComparison, ...]
    time_to_accuracy: tuple[TimeToAccuracy, ...]
    tasks: tuple[TaskRow, ...]
    confusion: tuple[ConfusionRow, ...]
    predictor: Predictor | None
    scaling: tuple[ScalingRow, ...]
    checked: tuple[CheckedRow, ...]
    claims: tuple[Claim, ...]
    advice: tuple[Advice, ...]

    @property
    def answer(self) -> str:
        """The study's answer in one sentence."""
        return answer(self.advice)

    @property
    def synthetic(self) -> bool:
        """Whether the images were drawn by a program."""
        return self.params.data.source == "synthetic"

    @property
    def short_run(self) -> bool:
        """Whether the trainings are too short to compare their accuracies with published ones."""
        return self.params.train.episodes < LONG_RUN_EPISODES

    @property
    def missing(self) -> Mapping[str, str]:
        """Why a part of the results is not there, by the part's name."""
        return self.results.missing

    @property
    def hardware(self) -> Hardware | None:
        """The machine that was measured."""
        return self.results.hardware

    @property
    def choices(self) -> Choices | None:
        """How every strategy computed its steps."""
        return self.results.tune.choices if self.results.tune else None

    @property
    def pretraining(self) -> PretrainResult | None:
        """The pretraining, if there was a record of one."""
        return self.results.pretraining.result if self.results.pretraining else None

    @property
    def evaluate(self) -> EvaluateResult | None:
        """The chosen network on the test split."""
        return self.results.evaluate.result if self.results.evaluate else None


def analyse(results: StudyResults, params: Params) -> Study:
    """Make every row, claim and piece of advice. Raises `RecordError` where a file holds too little."""
    evidence = Evidence.of(results, params)
    bench, evaluation = results.strategies, results.evaluate
    predictor = Predictor.of(bench, evidence.resampling) if bench and bench.cost_steps else None
    pairs = [(name, BASE) for name in results.training if name != BASE] + [("ddp", "dp")]
    compared = (compare(results, *pair, params.claims) for pair in pairs)
    episode = params.episode
    images = episode.n_way * (episode.k_shot + episode.k_query)
    tune = results.tune
    return Study(
        params=params,
        results=results,
        loader=evidence.loader,
        strategies=evidence.strategies,
        batchsz=dict(sorted(evidence.batchsz.items())),
        step=tuple(step_rows(tune.blocks, tune.choices, evidence.resampling)) if tune else (),
        accuracy=tuple(each for each in compared if each),
        time_to_accuracy=tuple(time_to_accuracy(results, images)),
        tasks=tuple(task_rows(evaluation.tasks if evaluation else ())),
        confusion=tuple(worst_confusions(evaluation.confusion)) if evaluation else (),
        predictor=predictor,
        scaling=tuple(shown_rows(predictor)) if predictor else (),
        checked=tuple(checked_rows(predictor, bench)) if predictor and bench else (),
        claims=tuple(judge_claims(evidence)),
        advice=tuple(advise(evidence)),
    )
