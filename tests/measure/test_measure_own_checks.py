"""Checks of a user's training before it is timed: each fault is noticed, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from traceback import clear_frames

import pytest
from own_file import edited, write_own
from small_tasks import alone
from standing_ranks import StandingRanks

from parashot.errors import TaskError
from parashot.questions.own.checks import (
    Checked,
    check_rank,
    first_step,
    repeats_in_workers,
)
from parashot.questions.own.measure import own_parallel
from parashot.questions.ways.records import Way
from parashot.tasks.own import own_task

DDP = Way("ddp", "ddp", 2, 1, 6, 0, "fp32", "none")
WAYS = (DDP, replace(DDP, way="allreduce", strategy="allreduce"))


def compared(ranks: StandingRanks, file: Path, *, has_batch_norm: bool = False) -> Checked:
    """The checks of two replicas by two strategies."""
    found: Checked = ranks(2, check_rank, own_task(file), own_parallel(), WAYS, has_batch_norm)
    return found


def assert_equal(found: Checked) -> None:
    """Both strategies have computed the gradient of one process, and there is nothing to say."""
    assert found.gradients.keys() == {"ddp", "allreduce"}
    assert max(found.gradients.values()) < 1e-10
    assert found.warnings == []


def test_dropout_is_switched_off_for_the_comparison(ranks: StandingRanks, tmp_path: Path) -> None:
    assert_equal(compared(ranks, write_own(tmp_path, "own_same", "nn.Tanh()", "nn.Tanh(), nn.Dropout(0.5)")))


def test_batch_norm_takes_each_share_by_itself_and_a_loss_that_is_a_sum_is_told_beside_it(
    ranks: StandingRanks, tmp_path: Path
) -> None:
    losses = {"mean": "F", "summed": "len(batch['x']) * F"}
    for name, loss in losses.items():
        changes = {"nn.Tanh()": "nn.BatchNorm1d(8)", "    return F": f"    return {loss}"}
        found = compared(ranks, edited(tmp_path, f"own_norm_{name}", changes), has_batch_norm=True)
        assert min(found.gradients.values()) > 1e-3
        (line,) = found.warnings
        assert "by ddp, allreduce is not" in line and "SyncBatchNorm" in line
        assert ("no mean" in line) == (name == "summed")


def test_a_loss_that_is_a_sum_is_told(ranks: StandingRanks, tmp_path: Path) -> None:
    file = write_own(tmp_path, "own_sum", "    return F", "    return len(batch['x']) * F")
    (line,) = compared(ranks, file).warnings
    assert "by ddp, allreduce is not that of one process: the loss is no mean" in line


@pytest.mark.parametrize("needs", ["<= 8", ">= 5"])
def test_a_few_samples_are_compared_and_a_whole_batch_where_they_do_not_do(
    ranks: StandingRanks, tmp_path: Path, needs: str
) -> None:
    changes = {
        "batchsz = 6": "batchsz = 10",
        "    return F": f"    assert len(batch['x']) {needs}\n    return F",
    }
    assert_equal(compared(ranks, edited(tmp_path, f"own_needs_{needs[-1]}", changes)))


def test_a_network_that_mixes_in_float32_is_compared_in_it(ranks: StandingRanks, tmp_path: Path) -> None:
    changes = {").double()": ")", "dtype=torch.float64": "dtype=torch.float32"}
    changes |= {'network(batch["x"])': 'network(batch["x"].float())'}
    found = compared(ranks, edited(tmp_path, "own_float32", changes))
    assert len(found.gradients) == 2
    (said,) = found.warnings
    assert "float32" in said


UNUSUAL = """\
    made.register_buffer("mask", torch.ones(2).bool())
    made.count = nn.Parameter(torch.arange(3), requires_grad=False)
    made.none = nn.Parameter(torch.zeros(0, 4).double(), requires_grad=False)
    made[0] = checkpoint_wrapper(made[0])
    made.append(Extra())
"""
EXTRA = """\
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


class Extra(nn.Identity):
    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass
"""


def test_unusual_parameters_and_state_are_no_obstacle(ranks: StandingRanks, tmp_path: Path) -> None:
    changes = {
        "    return nn.Sequential(": "    made = nn.Sequential(",
        ").double()\n": f").double()\n{UNUSUAL}    return made\n",
    }
    assert_equal(compared(ranks, edited(tmp_path, "own_unusual", changes, EXTRA)))


def test_maps_stay_in_the_order_that_a_view_needs(tmp_path: Path) -> None:
    """Convolutions of weights that are channels last return maps that cannot be viewed as rows."""
    changes = {
        "nn.Linear(4, 8), nn.Tanh()": "nn.Conv2d(2, 4, (1, 2), padding=(0, 1)), Viewed()",
        "nn.Linear(8, 3)": "nn.Linear(12, 3)",
        'network(batch["x"])': 'network(batch["x"].view(-1, 2, 1, 2))',
    }
    forward = "    def forward(self, x):\n        return x.view(len(x), -1)\n"
    top = f"from torch import nn\n\n\nclass Viewed(nn.Module):\n{forward}"
    file = edited(tmp_path, "own_view", changes, top)
    assert first_step(alone(), own_task(file), own_parallel()).unused == ()


def test_a_gradient_of_zero_is_told(ranks: StandingRanks, tmp_path: Path) -> None:
    file = edited(tmp_path, "own_zero", {"    return F": "    return 0 * F"})
    assert "is 0 or not finite" in compared(ranks, file).warnings[0]


def test_samples_that_are_random_are_compared_all_the_same(ranks: StandingRanks, tmp_path: Path) -> None:
    """Each gets random numbers of its own; what cannot be seeded is not blamed on the loss."""
    noise = {"x = ": "x = torch.rand(4) + np.random.rand() + random.random() + "}
    file = edited(tmp_path, "own_noise", noise, top="import random\n\nimport numpy as np")
    assert_equal(compared(ranks, file))
    hidden = {'F.cross_entropy(network(batch["x"])': 'F.cross_entropy(F.dropout(network(batch["x"]))'}
    (said,) = compared(ranks, edited(tmp_path, "own_hidden", hidden)).warnings
    assert "random numbers" in said


def test_a_data_set_that_differs_from_rank_to_rank_is_noticed(ranks: StandingRanks, tmp_path: Path) -> None:
    changes = {
        "return Rows()": "rows = [*Rows()]; random.Random(os.getpid()).shuffle(rows); return rows",
        "return 10": "return 200",
        "return {": "if index > 199:\n            raise IndexError\n        return {",
    }
    file = edited(tmp_path, "own_shuffled", changes, top="import os\nimport random")
    samples, gradient = compared(ranks, file).warnings
    assert "other samples in another process" in samples and "not the same" in gradient


@pytest.mark.parametrize(("name", "drawn"), [("fixed", "0"), ("numpy", "np.random.rand()")])
def test_samples_do_not_repeat_in_workers_where_pytorch_seeds_them(
    name: str, drawn: str, tmp_path: Path
) -> None:
    file = edited(tmp_path, f"own_drawn_{name}", {"x = ": f"x = {drawn} + "}, "import numpy as np\n")
    assert not repeats_in_workers(own_task(file))


WRAPPED = {
    "plain": ("x", "each"),
    "object": ("types.SimpleNamespace(x=x.numpy())", "torch.as_tensor(each.x)"),
    "nested": ("torch.nested.nested_tensor([x], layout=torch.jagged)", "each.unbind()[0]"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_augmentation_that_repeats_in_workers_is_noticed_before_samples_are_collated(
    name: str, tmp_path: Path
) -> None:
    """A generator is copied into all workers. Samples may be of any class; collating may need several."""
    wrapped, unwrapped = WRAPPED[name]
    collate = (
        "def collate(samples):\n    assert len(samples) > 1\n"
        f"    x = torch.stack([{unwrapped} for each in (sample['x'] for sample in samples)])\n"
        "    return {'x': x, 'y': torch.stack([sample['y'] for sample in samples])}\n\n\n"
    )
    changes = {"x = ": "x = rng.integers(2) + ", '"x": x,': f'"x": {wrapped},'}
    changes |= {"def dataset": f"{collate}def dataset"}
    top = "import types\n\nimport numpy as np\n\nrng = np.random.default_rng()\n"
    assert repeats_in_workers(own_task(edited(tmp_path, f"own_wrapped_{name}", changes, top)))


def test_an_error_in_workers_alone_is_the_users_own_line(tmp_path: Path) -> None:
    """However long it is."""
    failing = "x = (0 if torch.utils.data.get_worker_info() is None else {}['k' * 900]) + "
    file = write_own(tmp_path, "own_in_workers", "x = ", failing)
    with pytest.raises(
        TaskError, match=r"^\S+workers\.py:\d+, in __getitem__: KeyError: 'k{900}'$"
    ) as caught:
        repeats_in_workers(own_task(file))
    clear_frames(caught.tb)  # a loader in a cycle of garbage would wait for its workers, which wait for it


WRAPPING = "put the loss into the forward of a module"


def test_parameters_without_a_gradient_and_a_loss_that_is_no_number_are_named(tmp_path: Path) -> None:
    changes = {
        "nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))": (
            "nn.ModuleDict({'used': nn.Linear(4, 3), 'idle': nn.Linear(4, 3)})"
        ),
        "network(batch": "network['used'](batch",
    }
    first = first_step(alone(), own_task(edited(tmp_path, "own_unused", changes)), own_parallel())
    assert first.unused == ("idle.weight", "idle.bias") and not first.has_batch_norm
    unused, wrapped = first.warnings
    assert "idle.weight" in unused and "find_unused_parameters" in unused
    assert WRAPPING in wrapped
    beside = write_own(tmp_path, "own_beside", "return F.cross", "return network[0].bias.sum() + F.cross")
    assert WRAPPING in first_step(alone(), own_task(beside), own_parallel()).warnings[0]
    infinite = write_own(tmp_path, "own_infinite", "return F.cross", "return 1e400 * F.cross")
    with pytest.raises(TaskError, match=r"NaN or infinity in the first step.*look at the samples"):
        first_step(alone(), own_task(infinite), own_parallel())


WHOLE = 'return F.cross_entropy(network(batch["x"]), batch["y"])'


@pytest.mark.parametrize(
    ("name", "line", "kept"),
    [
        ("outputs", "kept.append(scores)", True),
        ("last", "network.last = value", False),
        ("numbers", "kept.append(value.item()); kept.append(scores.detach())", False),
    ],
)
def test_a_graph_that_is_kept_is_noticed(name: str, line: str, kept: bool, tmp_path: Path) -> None:
    """Not where each step's takes the place of the one before."""
    body = f'scores = network(batch["x"]); value = F.cross_entropy(scores, batch["y"]); {line}; return value'
    file = edited(tmp_path, f"own_kept_{name}", {WHOLE: body}, top="kept = []")
    warnings = first_step(alone(), own_task(file), own_parallel()).warnings
    assert any("detach()" in each for each in warnings) == kept


def test_a_state_that_is_carried_on_with_its_graph_is_one_line(tmp_path: Path) -> None:
    carried = (
        "network.state = getattr(network, 'state', 0) + F.cross_entropy(network(batch['x']), batch['y']); "
    )
    file = write_own(tmp_path, "own_carried", WHOLE, f"{carried}return network.state")
    with pytest.raises(TaskError, match=r"own_carried\.py: .*graph of an earlier step; detach\(\)"):
        first_step(alone(), own_task(file), own_parallel())
