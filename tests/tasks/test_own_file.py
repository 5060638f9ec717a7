"""A user's file as a task: it trains as a plain loop does, and what is wrong with it is said in one line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from own_file import edited, write_own
from small_tasks import TOLERANCE, State, alone, assert_equal, on_ranks, train_all
from standing_ranks import StandingRanks

from parashot.errors import TaskError
from parashot.parallel.context import Context
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions, weighted_loss
from parashot.questions.own.measure import own_parallel
from parashot.task import Plan
from parashot.tasks.handles import what_is_open
from parashot.tasks.own import load_file, own_task

ITEMS, USUAL = 26, StepOptions()
SHARING = [name for name, strategy in STRATEGIES.items() if strategy.shares_items]


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's file has its folder on the path, as a script does; no other test shall find modules there."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def trained(
    context: Context, name: str, file: Path, options: StepOptions = USUAL, fused: bool = False
) -> tuple[State, list[float]]:
    task = replace(own_task(file), fused=fused)
    strategy = build_strategy(name, task, options, context, own_parallel())
    return train_all(strategy, ITEMS)


def by_hand(file: Path) -> State:
    """The same training without this project: 4 steps of 6 samples and one of 2, in three passes over 10."""
    module = load_file(file)
    torch.manual_seed(0)
    network, rows = module.network(), module.dataset()
    optimizer = module.optimizer(network.parameters())
    passes = [torch.randperm(10, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    for indices in torch.cat(passes)[:ITEMS].split(6):
        batch = torch.utils.data.default_collate([rows[int(index)] for index in indices])
        optimizer.zero_grad()
        module.loss(network, batch).backward()
        optimizer.step()
    return dict(network.state_dict())


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", SHARING)
def test_every_data_parallel_strategy_trains_an_mlp_on_vectors_as_a_plain_loop_does(
    name: str, parts: int, ranks: StandingRanks, tmp_path: Path
) -> None:
    """The loss is a mean; of 6 samples replicas have 2, 2, 1 and 1, and of the last 2 some have none."""
    file, options = write_own(tmp_path, f"own_{name}_{parts}"), StepOptions(accumulate=parts)
    state, losses = on_ranks(ranks, name, trained, file, options, replicas=4)
    assert_equal(state, by_hand(file), TOLERANCE)
    assert losses == pytest.approx(trained(alone(), "serial", file)[1], abs=1e-10)


def test_the_backward_pass_begins_at_the_loss_of_the_file(tmp_path: Path) -> None:
    """With nothing put behind it, which would move what the memory allocator gives back in each step."""
    task = own_task(write_own(tmp_path, "own_loss"))
    strategy = build_strategy("serial", task, USUAL, alone(), own_parallel())
    (batch,) = task.ready_batches(Plan(task.batchsz, task.batchsz), 1, alone())
    outputs = strategy.model(batch.data)
    loss, _ = weighted_loss(outputs, task, batch)
    assert outputs.shape == () and loss.grad_fn is outputs.grad_fn


def test_a_loss_for_each_item_is_as_good_as_their_mean(tmp_path: Path) -> None:
    mean = write_own(tmp_path, "own_mean")
    each = write_own(tmp_path, "own_each", 'batch["y"])', 'batch["y"], reduction="none")')
    assert_equal(trained(alone(), "serial", each)[0], by_hand(mean), TOLERANCE)


def test_a_fused_optimizer_and_another_memory_order_train_the_same(tmp_path: Path) -> None:
    file = write_own(tmp_path, "own_fused", "RMSprop(parameters, lr=0.05)", "Adam(parameters, lr=0.05)")
    other, _ = trained(alone(), "serial", file, StepOptions(channels_last=False), True)
    assert_equal(other, by_hand(file), TOLERANCE)


def test_workers_bring_the_same_batches(tmp_path: Path) -> None:
    """Each replica's share lies in the order of the whole, and the passes are shuffled."""
    task = own_task(write_own(tmp_path, "own_workers"))
    whole = list(task.batches(Plan(24, 6), alone()))
    brought = list(replace(task, workers=2).batches(Plan(24, 6), alone()))
    assert [len(each) for each in whole] == [6, 6, 6, 6]
    for ours, theirs in zip(whole, brought, strict=True):
        assert torch.equal(ours.data[1]["x"], theirs.data[1]["x"])
    shares = [list(task.batches(Plan(24, 6, rank, 2), alone())) for rank in range(2)]
    together = torch.cat([part.data[1]["x"] for pair in zip(*shares, strict=True) for part in pair])
    assert torch.equal(together, torch.cat([each.data[1]["x"] for each in whole]))
    seen = {tuple(row.tolist()) for each in whole for row in each.data[1]["x"]}
    assert len(seen) == 10


WRONG = {
    "syntax": ("return Rows()", "return Rows(", "never closed"),
    "function": ("def loss(", "def los(", "no function loss"),
    "number": ("batchsz = 6", "batchsz = 0", "batchsz is 0"),
    "short": ("return 10", "return 5", "5 samples and a batch 6; set a smaller batchsz"),
    "iterable": ("return Rows()", "return iter(Rows())", r"dataset\(\) returns iterator; return one with __"),
    "sample": ("x = torch", "x = torch.no_such", r"in __getitem__: AttributeError"),
    "open": (
        "return Rows()",
        "rows = Rows(); rows.file = open(__file__); return rows",
        r"dataset\(\) opens what workers would share \(.*TextIOWrapper.*\); .* in __getitem__",
    ),
    "kept": ("return nn.", "return kept\n\n\nkept = nn.", "returns the same weights at each call"),
    "batch": (
        "def dataset():",
        "def collate(samples):\n    return {'rows': samples, 'way': lambda x: x}\n\n\ndef dataset():",
        "a batch cannot be sent from a worker",
    ),
    "end": ("batchsz = 6", "raise SystemExit(3)\nbatchsz = 6", r"py:\d+, .*it ends the program by exit\(3\)"),
    "nothing": ("return nn.", "nn.", r"network\(\) returns NoneType; return a torch.nn.Module"),
    "several": ("parameters, lr=0.05)", "parameters),", r"optimizer\(\) returns tuple; return one"),
    "shape": ("return F", "return network(batch['x']), F", "loss returns tuple for a batch of 6"),
    "memory": ("nn.Linear(4, 8)", "nn.Linear(4, 1 << 44)", "in network: the memory is full; set a smaller"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_one_line_with_its_place(name: str, tmp_path: Path) -> None:
    old, new, message = WRONG[name]
    file = write_own(tmp_path, f"wrong_{name}", old, new)
    with pytest.raises(TaskError, match=message) as caught:
        trained(alone(), "serial", file)
    assert file.name in str(caught.value)


def test_a_file_that_is_not_there_or_hidden_by_another_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such file"):
        own_task(tmp_path / "nowhere.py")
    with pytest.raises(TaskError, match="another module called random"):
        own_task(write_own(tmp_path, "random"))
    with pytest.raises(TaskError, match=r"own\.v2\.py: .*another name, without a dot"):
        own_task(write_own(tmp_path, "own.v2"))


def test_a_file_of_this_folder_may_go_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `exec` compiles is no file of this folder."""
    monkeypatch.chdir(tmp_path)
    compiling = write_own(tmp_path, "wrong_exec", "return Rows()", "exec('1 / 0')")
    with pytest.raises(TaskError, match=r"wrong_exec\.py:\d+, in dataset: ZeroDivisionError"):
        own_task(Path(compiling.name))
    going = write_own(tmp_path, "own_going", "batchsz = 6", "import os\nos.chdir('/')\nbatchsz = 6")
    (batch,) = replace(own_task(Path(going.name)), workers=1).batches(Plan(6, 6), alone())
    assert len(batch) == 6


IN_A_CLASS = """

class Small:
    batchsz = 3

    def __init__(self):
        self.width = 5

    def network(self):
        return nn.Sequential(nn.Linear(4, self.width), nn.Tanh(), nn.Linear(self.width, 3)).double()

    def collate(self, samples):
        return torch.utils.data.default_collate(samples)

    dataset, loss, optimizer = map(staticmethod, (dataset, loss, optimizer))


small = Small()
"""


def test_one_of_several_trainings_in_a_file_is_named(tmp_path: Path) -> None:
    """By a class or an object; workers call its methods, too."""
    file = write_own(tmp_path, "own_several")
    file.write_text(file.read_text() + IN_A_CLASS)
    for name in ("Small", "small"):
        task = own_task(Path(f"{file}:{name}"))
        assert (task.batchsz, len([*task.network().parameters()][1])) == (3, 5)
        (batch,) = replace(task, workers=1).batches(Plan(3, 3), alone())
        assert [*batch.data[0].shape] == [3]
    assert own_task(file).batchsz == 6
    with pytest.raises(TaskError, match=r"own_several\.py: nothing is called Large there"):
        own_task(Path(f"{file}:Large"))
    with pytest.raises(TaskError, match=r"own_several\.py:torch: no function network"):
        own_task(Path(f"{file}:torch"))


HIDING = {"seen": "", "hidden": "    def __getstate__(self):\n        return {}\n\n"}


@pytest.mark.parametrize("name", HIDING)
def test_a_data_set_may_open_its_file_when_it_is_first_read(name: str, tmp_path: Path) -> None:
    """Forked workers would move each other's place in it: they get a data set of which nothing was read.

    What its class leaves out when it is pickled would be there in a forked worker, too.
    """
    reading = "    def __getitem__(self, index):\n"
    opening = (
        f"    handle = None\n\n{HIDING[name]}{reading}        self.handle = self.handle or open(__file__)\n"
    )
    task = own_task(write_own(tmp_path, f"own_opens_{name}", reading, opening))
    assert task.reads_apart
    plan = Plan(2 * task.batchsz, task.batchsz)
    for workers in (0, 1, 0):
        batches = list(replace(task, workers=workers).batches(plan, alone()))
        assert [len(each) for each in batches] == [6, 6]


def test_what_forked_workers_may_have_is_not_refused(tmp_path: Path) -> None:
    """Functions without a name, memory that is made to be shared, and locks and caches of the process."""
    made = (
        "rows = Rows(); rows.transforms = [abs, lambda x: x]; rows.shared = torch.zeros(3).share_memory_(); "
        "rows.array = multiprocessing.Array('d', 3); rows.lock = threading.Lock(); "
        "rows.cached = functools.lru_cache(abs); rows.local = threading.local(); "
        "rows.bytes = memoryview(b'x'); return rows"
    )
    top = "import functools\nimport multiprocessing\nimport threading\n"
    file = edited(tmp_path, "own_shared", {"return Rows()": made}, top=top)
    task = own_task(file)
    assert not task.reads_apart
    (batch,) = replace(task, workers=1).batches(Plan(6, 6), alone())
    assert len(batch) == 6


def test_data_larger_than_the_memory_are_not_read_to_see_what_is_open(tmp_path: Path) -> None:
    tokens = np.memmap(tmp_path / "tokens", np.uint8, "w+", shape=2**37)  # 128 GiB, none of which is written
    table = pytest.importorskip("pyarrow").table({"text": ["a", "b"]})
    assert what_is_open({"tokens": tokens, "text": table, "names": np.array(["a", None])}, hidden=True) == ""
    with (tmp_path / "tokens").open("rb") as file:
        assert "BufferedReader" in what_is_open({"objects": np.array([file])}, hidden=True)


def test_a_data_set_of_many_tensors_is_read_by_workers(tmp_path: Path) -> None:
    """More than there are file descriptors for."""
    many = "rows = Rows(); return [rows[place % 10] for place in range(2000)]"
    task = own_task(write_own(tmp_path, "own_many", "return Rows()", many))
    plan = Plan(2 * task.batchsz, task.batchsz)
    here, there = ([*replace(task, workers=workers).batches(plan, alone())] for workers in (0, 1))
    assert len(here) == 2
    for one, other in zip(here, there, strict=True):
        assert one.data[1].keys() == {"x", "y"} and one.data[1]["y"].dtype == torch.int64
        torch.testing.assert_close(one.data, other.data, rtol=0, atol=0)


OBJECTS = """
from collections import namedtuple
from dataclasses import dataclass

Pair = namedtuple("Pair", "x y")


@dataclass
class Record:
    x: torch.Tensor
    y: torch.Tensor
    note: str = "a batch"

    def __getitem__(self, name):
        return getattr(self, name)


def collate(samples):
    together = torch.utils.data.default_collate(samples)
    return MADE


def dataset"""
MADE = {
    "rows": ("Record(**together)", 'network(batch["x"])'),
    "columns": ('{"x": together["x"].T.contiguous(), "y": together["y"]}', 'network(batch["x"].T)'),
}


@pytest.mark.parametrize("name", MADE)
def test_batches_may_be_objects_and_have_their_samples_along_any_axis(
    name: str, ranks: StandingRanks, tmp_path: Path
) -> None:
    made, scores = MADE[name]
    changes = {"\ndef dataset": OBJECTS.replace("MADE", made), 'network(batch["x"])': scores}
    file = edited(tmp_path, f"own_{name}", changes)
    task, expected = own_task(file), by_hand(write_own(tmp_path, f"own_{name}_by_hand"))
    assert not task.cuttable
    batch = next(replace(task, workers=1).batches(Plan(6, 6), alone()))
    assert [each.dtype for each in batch.tensors[1:3]] == [torch.float64, torch.int64] and len(batch) == 6
    halved = batch.map(lambda each: each / 2)
    assert torch.equal(halved.tensors[1], batch.tensors[1] / 2)
    assert_equal(on_ranks(ranks, "ddp", trained, file)[0], expected, TOLERANCE)


def test_a_batch_of_plain_tensors_is_handed_on_as_it_is(tmp_path: Path) -> None:
    plain = write_own(tmp_path, "own_plain")
    named = write_own(tmp_path, "own_named", "\ndef dataset", OBJECTS.replace("MADE", "Pair(**together)"))
    for file, kind in ((plain, "dict"), (named, "Pair")):
        task = own_task(file)
        (batch,) = task.batches(Plan(6, 6), alone())
        assert task.cuttable and type(batch.data[1]).__name__ == kind


# --- examples ---------------------------------------------------------------------------------------------

EXAMPLES = [
    pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if file.stem == "image_classifier" else [])
    for file in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
]


def losses(context: Context, name: str, file: Path, steps: int) -> list[float]:
    """Of steps on one batch, without dropout, which is random."""
    task = replace(own_task(file), random=False)
    strategy = build_strategy(name, task, USUAL, context, own_parallel())
    return train_all(strategy, steps * task.batchsz, alike=True)[1]


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_trains(file: Path, ranks: StandingRanks) -> None:
    found = losses(alone(), "serial", file, 6)
    assert found[-1] < found[0]
    first = on_ranks(ranks, "ddp", losses, file, 1)
    assert first == pytest.approx(found[:1], rel=0.05)  # batch norm takes each share by itself
