"""The model of cost by hand, on records whose numbers were planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import study_builder as build

from parashot.errors import RecordError, UsageError
from parashot.questions.scaling.cost_model import Cluster, Replica, fit_line, predicted_seconds
from parashot.questions.scaling.links import LINKS, link, parse_link
from parashot.questions.scaling.rows import Predictor, ScalingRow, checked_rows, shown_rows
from parashot.questions.statistics import CONFIDENCE, Interval

IDEAL = "inf,0"


def predictor(own: float = 0.0, **changes: object) -> Predictor:
    bench = replace(build.strategy_results(own=own), **changes)  # type: ignore[arg-type]
    return Predictor.of(bench, CONFIDENCE)


def by_devices(rows: list[ScalingRow], mode: str) -> dict[int, ScalingRow]:
    return {row.devices: row for row in rows if row.mode == mode}


def test_a_ring_by_hand_and_what_is_hidden_ends_with_the_backward_pass() -> None:
    """Four ranks, 6 hops: each carries a quarter of 8 GB at 2 GB/s, and waits 10 µs in each of 3 messages."""
    wire, nothing = link("any", 2, 10), np.zeros(1)
    ring = 6 * (1.0 + 3e-5)
    assert wire.ring(4, 8e9, 3) == pytest.approx(ring)
    assert wire.ring(1, 8e9, 3) == 0
    for computing, exposed in ((15.0, ring / 4), (3.0, ring - 2.0)):
        replica = Replica(np.full(1, computing), nothing, np.ones(1))
        found = predicted_seconds(replica, Cluster(4, 1, wire, wire), 1, 8e9, 3, hidden=0.75)
        assert found == pytest.approx(computing + exposed)


def test_a_fit_is_never_below_nothing() -> None:
    intercept, slope = fit_line([1, 2, 3], [3.0, 2.0, 1.0])
    assert intercept > 0 and slope == 0
    intercept, slope = fit_line([1, 2, 3], [1.0, 4.0, 9.0])
    assert intercept == 0 and slope > 0


def test_planted_numbers_come_back_from_noiseless_blocks() -> None:
    """All settings of a round are slowed alike: the fit is of the median round."""
    found, slow = predictor(), np.median(build.slow_rounds())
    assert found.replica.fixed[0] == pytest.approx(slow * build.FIXED)
    assert found.replica.per_episode[0] == pytest.approx(slow * build.PER_EPISODE)
    assert found.replica.contention == pytest.approx(build.CONTENTION)
    assert found.here
    assert found.here.latency[0] == pytest.approx(slow * build.HOP_SECONDS)
    assert 1 / found.here.seconds_per_byte[0] == pytest.approx(build.BYTES_PER_SECOND / slow)
    assert found.hidden and found.hidden.value == pytest.approx(0.75)
    assert (found.messages, found.gradient_bytes, found.per_node, found.batchsz) == (3, 460_000, 2, 16)


@pytest.mark.parametrize("link", [*LINKS, "here", "0.001,5000"])
def test_one_device_is_the_base_and_efficiency_at_most_ideal(link: str) -> None:
    rows = predictor(own=0.02).rows(link, [1, 2, 7, 64, 300])
    for row in rows:
        assert row.efficiency.high <= 1 + 1e-9
        assert row.seconds_per_step.low <= row.seconds_per_step.value <= row.seconds_per_step.high
        assert row.replicas <= row.batchsz
        if row.devices == 1:
            assert row.speedup == row.efficiency == Interval(1, 1, 1)
            assert (row.nodes, row.replicas, row.batchsz) == (1, 1, 16)


def test_over_an_ideal_link_weak_scaling_is_ideal_and_strong_ends_at_what_does_not_shrink() -> None:
    """A step of 16 episodes has work for 16 replicas: one episode each, and the fixed part."""
    found = predictor()
    scaled = found.rows(IDEAL, [16, 64, 4096], per_node=1)
    assert [row.efficiency.value for row in scaled if row.mode == "weak"] == pytest.approx([1, 1, 1])
    rows = by_devices(scaled, "strong")
    least = found.replica.fixed[0] + found.replica.per_episode[0]
    assert [row.seconds_per_step.value for row in rows.values()] == pytest.approx([least] * 3)
    assert [row.replicas for row in rows.values()] == [16] * 3
    assert rows[4096].efficiency.value < rows[64].efficiency.value < 1


def test_nodes_are_filled_first() -> None:
    rows = by_devices(predictor().rows("ethernet-10g", [1, 2, 3, 64], per_node=8), "weak")
    assert [row.nodes for row in rows.values()] == [1, 1, 1, 8]
    slow = by_devices(predictor().rows("0.001,1000", [2, 8, 9], per_node=8), "weak")
    assert slow[9].efficiency.value < 0.8 * slow[8].efficiency.value


def test_an_overlap_that_was_not_seen_is_none_at_best_all() -> None:
    unseen = predictor(shares=())
    row, known = (each.rows("ethernet-1g", [2], per_node=1)[1] for each in (unseen, predictor()))
    assert unseen.hidden is None
    assert row.seconds_per_step.low < known.seconds_per_step.low
    assert row.seconds_per_step.value > known.seconds_per_step.value


def test_one_replica_predicts_over_named_links_alone() -> None:
    alone = predictor(cost_steps=build.cost_steps(busy=(1,)), cost_messages=())
    assert alone.per_node == 1 and alone.here is None
    assert shown_rows(alone, []) == [] and alone.rows("ethernet-10g", [2])
    with pytest.raises(UsageError, match="'here' was not measured"):
        alone.rows("here", [2])


def test_predictions_are_checked_against_blocks() -> None:
    bench = build.strategy_results(own=0.0)
    serial, ddp = checked_rows(Predictor.of(bench, CONFIDENCE), bench)
    assert (serial.variant, serial.devices, ddp.variant, ddp.devices) == ("serial", 1, "ddp", 2)
    assert serial.error == pytest.approx(0, abs=1e-9)
    computing = build.CONTENTION * (build.FIXED + 8 * build.PER_EPISODE)
    waiting = 0.25 * 2 * (3 * build.HOP_SECONDS + 230_000 / build.BYTES_PER_SECOND)
    assert ddp.error == pytest.approx((computing + waiting) / build.STEPS["ddp"] - 1)
    found = Predictor.of(bench, CONFIDENCE)
    plain = shown_rows(found, [])
    for error in (1.0, -0.5):  # twice, and half of what was measured
        for row, wide in zip(plain, shown_rows(found, [serial, replace(ddp, error=error)]), strict=True):
            factor = 2 if row.devices > 1 else 1
            assert wide.speedup.low == pytest.approx(row.speedup.low / factor)
            assert wide.speedup.high == pytest.approx(row.speedup.high * factor)
    bench = build.strategy_results(skipped={"ddp": "switched off"})
    assert [row.variant for row in checked_rows(Predictor.of(bench, CONFIDENCE), bench)] == ["serial"]


def test_without_steps_of_several_sizes_it_says_what_to_run() -> None:
    with pytest.raises(RecordError, match=r"steps of several sizes.*dvc repro"):
        predictor(cost_steps=())


def test_links_by_name_and_by_number() -> None:
    assert parse_link("nvlink4") is LINKS["nvlink4"]
    assert parse_link("12.5,20") == link("12.5 GB/s, 20 µs", 12.5, 20)
    for text in ("", "1,2,3", "1,-1", "1,inf", "nan,1"):
        with pytest.raises(UsageError, match="link"):
            parse_link(text)
