"""Advice to take all of it: the two ways, and what was measured of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parashot.questions.accuracy.rows import PRECISIONS
from parashot.questions.advice import Advice
from parashot.questions.claim import UntestableError, needed
from parashot.questions.gain.records import ADVISED, USUAL
from parashot.questions.loader.claims import choose_loading
from parashot.questions.step.rows import seconds_by_way, usual_way
from parashot.questions.strategies.claims import choose_strategy
from parashot.questions.strategies.rows import BASE
from parashot.questions.text import percent, seconds, times
from parashot.questions.ways.records import PLAIN_LOADER, EpisodeWay

if TYPE_CHECKING:
    from parashot.questions.study import Study


ALL_OF_IT = "all of it"
"""Topic of the advice."""


def two_ways(study: Study, cores: int) -> tuple[EpisodeWay, ...]:
    """The default way, by one process that has `cores` threads, and the one that is advised.

    Neither where a part of the advice was not measured.
    """
    try:
        row = study.strategies[choose_strategy(study).choice]
        loading = choose_loading(study).choice
        tune = needed(study, "tune", study.results.tune)
    except UntestableError:
        return ()
    usual, size = usual_way(tune.choices, seconds_by_way(tune.blocks)), study.params.train.batchsz
    advised = (row.strategy, row.replicas, row.threads_per_replica, size, loading, tune.choices)
    return EpisodeWay.of(USUAL, BASE, 1, cores, size, PLAIN_LOADER, usual), EpisodeWay.of(ADVISED, *advised)


def advise_all(study: Study) -> Advice:
    """Say what all of the advice buys together."""
    needed(study, "gain", study.results.gain)
    if not study.gain:
        raise UntestableError(
            "it needs the strategies, the loader and a step to be measured; run `dvc repro`"
        )
    default, advised = study.gain
    if advised.way not in two_ways(study, default.way.threads_per_replica):
        raise UntestableError(
            f"{advised.way} was measured, which is not what is advised now: accuracy over seeds has ruled "
            "its strategy out since, or params.yaml has changed"
        )
    if study.is_worse(*PRECISIONS) and advised.way.precision == "bf16":
        raise UntestableError(f"{advised.way} was measured, and bf16 is left out for its accuracy")
    gain = advised.speedup
    assert gain is not None  # both are measured, or none
    took = f"{advised.items} episodes took {seconds(advised.seconds)} instead of {seconds(default.seconds)}"
    default_words = f"one process that decodes JPEGs and computes in {default.way.computing}"
    waits = f"a step waited {percent(advised.waiting.value)} of its time for data instead of"
    return Advice(
        topic=ALL_OF_IT,
        choice="the three together",
        phrase=f"together that is {times(gain)} as fast as {default_words}",
        buys=f"{times(gain)} as fast as {default.way}: {took}",
        sure=f"measured as {advised.way}, with {advised.way.batchsz} episodes per step, in {advised.blocks} "
        "blocks of each in turn; "
        f"{waits} {percent(default.waiting.value)}",
        decided=gain.side_of(1) != "around",
    )
