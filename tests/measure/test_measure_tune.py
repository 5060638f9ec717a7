"""What params leave open is measured, and a tie goes to what is plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, astuple
from itertools import product
from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.errors import DeviceError
from parashot.parallel import abilities
from parashot.parallel.abilities import compile_modes, precisions
from parashot.params import ClaimsParams
from parashot.parsing import Value
from parashot.questions.batchsz.measure import study_batch_sizes
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.step import measure as module
from parashot.questions.step.measure import choose, open_modes, open_ways, tune, with_compiled
from parashot.questions.step.records import TuneBlock
from parashot.questions.step.rows import seconds_by_way, step_rows
from parashot.questions.strategies.measure import bench_strategies
from parashot.questions.timed import TimedStrategy
from parashot.records import Provenance, read_json, read_result, read_rows, read_runs
from parashot.train.job import episode_job
from parashot.train.records import Choices, resolve_auto
from parashot.train.run import train

CLAIMS = ClaimsParams(accuracy_margin=0.02, time_margin=0.05, confidence=0.95)
FP32, BF16 = Choices("split", "fp32", "none"), Choices("split", "bf16", "none")
CONCAT = Choices("concat", "fp32", "none")


def test_all_that_is_open_is_tried_the_plainest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "precisions", lambda device: ["fp32", "bf16"])
    ways = open_ways(tiny_params({"episode.n_way": 3, "episode.k_query": 2}), "cpu")
    assert ways == [FP32, CONCAT, BF16, Choices("concat", "bf16", "none")]
    fixed = {"model.pairing": "concat", "train.precision": "bf16", "train.compile": "default"}
    assert open_ways(tiny_params(fixed), "cpu") == [Choices("concat", "bf16", "default")]
    monkeypatch.setattr(module, "precisions", lambda device: ["fp32"])  # all the device can do
    assert {way.precision for way in open_ways(tiny_params(), "cpu")} == {"fp32"}


def test_a_way_is_chosen_only_where_it_is_faster_beyond_doubt() -> None:
    slow, fast = [1 + number / 100 for number in range(9)], [0.5 + number / 100 for number in range(9)]
    noisy, faster = [0.6, 1.5, 0.7, 1.4, 0.9, 1.2, 0.8, 1.3, 0.95], [each / 2 for each in fast]

    def chosen(seconds: dict[Choices, list[float]]) -> set[Choices]:
        """Every choice that an order of the blocks within a round leads to."""
        rounds = product(range(9), seconds.items())
        blocks = [TuneBlock(0, at, **asdict(way), seconds=each[at]) for at, (way, each) in rounds]
        return {choose([*seconds], each, CLAIMS) for each in (blocks, blocks[::-1])}

    assert chosen({FP32: slow, BF16: fast}) == {BF16}
    assert chosen({FP32: slow, BF16: noisy}) == {FP32}
    assert chosen({FP32: fast, BF16: slow}) == {FP32}
    assert chosen({FP32: slow, CONCAT: fast, BF16: faster}) == {BF16}
    assert chosen({FP32: slow}) == {FP32}
    near = [each * 0.99 for each in fast]  # of equals the first, whatever the luck
    assert chosen({FP32: slow, CONCAT: fast, BF16: near}) == {CONCAT}


def test_a_network_is_compiled_only_where_nothing_stands_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free: dict[str, Value] = {"train.compile": "auto", "train.recompute": False}
    able = ["none", "default", "reduce-overhead"]
    monkeypatch.setattr(module, "compile_modes", lambda device: able)
    assert open_modes(tiny_params(free), "cpu") == able[1:]
    assert open_modes(tiny_params({**free, "train.recompute": True}), "cpu") == []
    assert open_modes(tiny_params({**free, "train.compile": "none"}), "cpu") == []
    assert open_modes(tiny_params({**free, "train.accumulate": 2}), "cpu") == ["default"]
    able[1:] = []
    assert open_modes(tiny_params(free), "cpu") == []


def test_resolving_fills_in_what_is_open_and_leaves_the_rest() -> None:
    choices = Choices("concat", "bf16", "default")
    resolved = resolve_auto(tiny_params(), choices)
    assert (resolved.model.pairing, resolved.train.precision, resolved.train.compile) == astuple(choices)
    fixed = tiny_params({"model.pairing": "split", "train.precision": "fp32", "train.compile": "none"})
    assert resolve_auto(fixed, choices) == fixed


def test_what_is_chosen_was_measured_and_every_way_is_a_run(
    tiny_packed: Path, tmp_path: Path, one_core: None
) -> None:
    out, params = tmp_path / "tune", tiny_params({"parallel.bench.launches": 2})
    tune(params, tiny_packed, tmp_path / "choices.json", out, Provenance())
    blocks, chosen = read_rows(TuneBlock, out / "blocks.csv"), read_result(Choices, tmp_path / "choices.json")
    rows = step_rows(blocks, chosen, CONFIDENCE)
    assert len(rows) >= 2 and [row.chosen for row in rows].count(True) == 1
    order = [(each.launch, each.round) for each in blocks]
    assert order == sorted(order) and {launch for launch, _ in order} == {0, 1}
    assert {number for _, number in order} == set(range(params.parallel.bench.blocks))
    parent, *children = read_runs(out / "records.jsonl")
    assert sum(each.params["chosen"] == "true" for each in children) == 1
    metrics = read_json(out / "metrics.json")
    assert {f"{parent.name}: {name}" for name in metrics} == {each.name for each in children}
    assert all(each["seconds_per_step"] > 0 for each in metrics.values())


def test_nothing_is_measured_where_nothing_is_open(tiny_packed: Path, tmp_path: Path, one_core: None) -> None:
    fixed = {"model.pairing": "concat", "train.precision": "fp32", "train.compile": "none"}
    tune(tiny_params(fixed), tiny_packed, tmp_path / "choices.json", tmp_path / "tune", Provenance())
    assert read_rows(TuneBlock, tmp_path / "tune/blocks.csv") == []
    assert read_result(Choices, tmp_path / "choices.json") == CONCAT


@pytest.mark.parametrize(
    ("compiled", "episodes", "mode"),
    [(0.5, 3000, "default"), (1.5, 3000, "none"), (0.5, 90, "none")],  # 30 steps never win back a minute
)
def test_a_long_training_is_compiled_where_that_pays(
    monkeypatch: pytest.MonkeyPatch, compiled: float, episodes: int, mode: str
) -> None:
    """With a clock that knows how long each way takes, and a first step that compiles for 60 s."""

    class Clocked(TimedStrategy):
        def __init__(self, step_seconds: float, compiling: float = 0.0) -> None:
            self.each, self.compiling = step_seconds, compiling

        def seconds(self, steps: int) -> float:
            found, self.compiling = self.compiling or self.each * steps, 0.0
            return found

    timed = {FP32: Clocked(1.0), BF16: Clocked(2.0)}
    params = tiny_params({"train.episodes": episodes})
    found = with_compiled(timed, {"default": Clocked(compiled, 60.0)}, FP32, params)
    assert found.choices == Choices("split", "fp32", mode)
    by_way = seconds_by_way(found.blocks)
    assert {*by_way} == {FP32, BF16, Choices("split", "fp32", "default")}
    assert len({tuple(each) for each in by_way.values()}) == 1  # all in the same rounds


@pytest.mark.parametrize(
    ("key", "value", "able"),
    [("train.precision", "bf16", "fp32"), ("train.compile", "reduce-overhead", "none")],
)
def test_what_the_device_cannot_do_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tiny_packed: Path, tmp_path: Path, key: str, value: str, able: str
) -> None:
    monkeypatch.setattr(abilities, "precisions", lambda device: ["fp32"])
    monkeypatch.setattr(abilities, "compile_modes", lambda device: ["none"])
    params, out, none = tiny_params({key: value}), tmp_path / "out", Provenance()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: tune(params, tiny_packed, tmp_path / "choices.json", out, none),
        lambda: train(episode_job("serial", params, tiny_packed, out)),
        lambda: bench_strategies(params, tiny_packed, out, none),
        lambda: study_batch_sizes(params, tiny_packed, None, out, none),
    )
    for attempt in attempts:
        with pytest.raises(DeviceError) as refused:
            attempt()
        assert str(refused.value) == f"{key}: {value} is not possible on cpu here; it can be {able}"
    assert list(tmp_path.iterdir()) == []


def test_a_cpu_can_do_the_plain_at_least() -> None:
    assert (precisions("cpu")[0], compile_modes("cpu")[0]) == ("fp32", "none")
    assert "reduce-overhead" not in compile_modes("cpu")
