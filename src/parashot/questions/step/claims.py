"""Claims about how one replica computes a step, which tests settle, and advice on its precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from parashot.questions.accuracy.rows import PRECISIONS
from parashot.questions.advice import MORE_BLOCKS, Advice, Choice
from parashot.questions.claim import Finding, UntestableError, by_test, claim, needed, settled
from parashot.questions.step.rows import base_way, seconds_by_way
from parashot.questions.text import times

if TYPE_CHECKING:
    from parashot.questions.statistics import Rounds
    from parashot.questions.study import Study
    from parashot.train.records import Choices

concat_serial = settled(
    "concat-serial",
    "Joining support and query cannot be parallelised.",
    "does not hold",
    "tests/model/test_pairing.py: the same scores come without joining, from parts that split freely",
)
checkpointing_trades = settled(
    "checkpointing-trades",
    "Gradient checkpointing trades time for memory.",
    "holds",
    "tests/model/test_recompute.py: fewer bytes are kept for backward, and blocks are computed twice; "
    "the peak of memory is measured by `python -m benchmarks check`",
)


@claim("accumulation-equals", "k accumulated batches equal one that is k times as large.")
def accumulation_equals(study: Study) -> Finding:
    """Holds if batch norm takes the same groups of episodes in both, as ghost batch norm does."""
    test = "tests/train/test_train_loop.py"
    if study.params.model.norm_episodes:
        groups = "batch norm takes the same groups of episodes in both (model.norm_episodes)"
        return by_test("holds", f"{test}: {groups}; of PyTorch's, which takes each part, it does not hold")
    return by_test("does not hold", f"{test}: batch norm takes its statistics from each part")


@claim("copy-overlap", "Copies to the device can be hidden behind computing.")
def copy_overlap(study: Study) -> Finding:
    """Holds, on a GPU: the next batch is copied on a stream of its own while this one is computed."""
    if study.results.hardware is None or not study.results.hardware.gpus:
        raise UntestableError("images are copied to a device only where that is a GPU, and there is none")
    return by_test("holds", "tests/data/test_cuda_prefetch.py: one batch is copied while another is computed")


# --- advice ---------------------------------------------------------------------------------------------


def advise_step(study: Study) -> Advice:
    """Advise the way that stage tune took: the first in its order, unless another is shown to be faster.

    Compiled ones are no choice where it did not take them: a training as short does not repay compiling. Nor
    are those in bf16 where trainings in fp32 have shown it to cost accuracy.
    """
    tune = needed(study, "tune", study.results.tune)
    taken, timed = tune.choices, seconds_by_way(tune.blocks)
    loses = study.is_worse(*PRECISIONS)
    if loses:
        taken = replace(taken, precision="fp32", compile="none")
        timed = {way: timed[way] for way in timed if way.precision == "fp32"}
    seconds = {way: timed[way] for way in timed if taken.compile != "none" or way.compile == "none"}
    if taken not in seconds:
        raise UntestableError("params say how a step is computed; auto has it measured")
    lost = "bf16 is left out for its accuracy" if loses else ""
    base = base_way(taken, seconds)
    ranking = study.rank(seconds)
    choice = Choice(taken, ranking, taken in ranking.as_good)
    buys = choice.gains_nothing
    if taken != base:
        buys = f"{times(choice.gain(base, seconds, study.confidence))} as fast as {base}"
    if (base.pairing, taken.pairing) == ("concat", "split"):
        buys += "; split gives the same scores without joining the maps of each pair"
    return Advice(
        topic="computing",
        choice=str(taken),
        phrase=f"compute in {taken}",
        buys=buys,
        sure="; ".join(filter(None, (choice.how_sure("way"), _not_repaid(study, timed, seconds), lost))),
        decided=choice.decided,
        settings={
            "train.precision": taken.precision,
            "model.pairing": taken.pairing,
            "train.compile": taken.compile,
        },
        changes=choice.open_until(MORE_BLOCKS),
    )


def _not_repaid(study: Study, timed: Mapping[Choices, Rounds], seconds: Mapping[Choices, Rounds]) -> str:
    """Say that compiled steps, which are no choice, are faster than the others; empty where they are not."""
    compiled = [way for way in timed if way not in seconds]
    if not compiled or study.rank(timed).best in seconds:
        return ""
    return "compiled steps are faster, which does not repay compiling in a training this short"
