"""Checks of a user's training before it is timed: each fault is noticed, and nothing where there is none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from traceback import clear_frames

import pytest
from own_file import edited, write_own
from small_tasks import alone
from standing_ranks import StandingRanks

from parashot.errors import TaskError
from parashot.questions.own.checks import Checked, check_rank, first_step, repeats_in_workers
from parashot.questions.own.measure import own_parallel
from parashot.questions.ways.records import Way
from parashot.tasks.own import own_task

DDP = Way("ddp", "ddp", 2, 1, 6, 0, "fp32", "none")
WAYS = (DDP, replace(DDP, way="allreduce", strategy="allreduce"))


UNUSUAL = """\
    made.register_buffer("mask", torch.ones(2).bool())
    made.count = nn.Parameter(torch.arange(3), requires_grad=False)
    made.none = nn.Parameter(torch.zeros(0, 4).double(), requires_grad=False)
    made[0] = checkpoint_wrapper(made[0])
    made.append(Extra())
    return made
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
FLOAT32 = {
    ").double()": ")",
    "dtype=torch.float64": "dtype=torch.float32",
    'network(batch["x"])': 'network(batch["x"].float())',
}
SHUFFLED = {
    "return Rows()": "rows = [*Rows()]; random.Random(os.getpid()).shuffle(rows); return rows",
    "return 10": "return 200",
    "return {": "if index > 199:\n            raise IndexError\n        return {",
}
NORM, SUM = {"nn.Tanh()": "nn.BatchNorm1d(8)"}, {"    return F": "    return len(batch['x']) * F"}
DIFFER = "by ddp, allreduce is not that of one process: "

COMPARED: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "dropout": ({"nn.Tanh()": "nn.Tanh(), nn.Dropout(0.5)"}, "", []),
    "norm": (NORM, "", [f"{DIFFER}.*SyncBatchNorm((?!no mean).)*$"]),
    "norm_and_sum": (NORM | SUM, "", [f"{DIFFER}.*SyncBatchNorm.*no mean"]),
    "sum": (SUM, "", [f"{DIFFER}the loss is no mean"]),
    "float32": (FLOAT32, "", ["float32"]),
    "unusual": (
        {"    return nn.Sequential(": "    made = nn.Sequential(", ").double()\n": f").double()\n{UNUSUAL}"},
        EXTRA,
        [],
    ),
    "zero": ({"    return F": "    return 0 * F"}, "", ["is 0 or not finite"]),
    # each sample gets random numbers of its own; what cannot be seeded is not blamed on the loss
    "noise": (
        {"x = ": "x = torch.rand(4) + np.random.rand() + random.random() + "},
        "import random\n\nimport numpy as np",
        [],
    ),
    "hidden_noise": ({'y(network(batch["x"])': 'y(F.dropout(network(batch["x"]))'}, "", ["random numbers"]),
    "shuffled": (SHUFFLED, "import os\nimport random", ["other samples in another process", "not the same"]),
}
for needs in ("<= 8", ">= 5"):
    asserting = {"batchsz = 6": "batchsz = 10", "return F": f"assert len(batch['x']) {needs}\n    return F"}
    COMPARED[f"needs_{needs[-1]}"] = (asserting, "", [])


@pytest.mark.parametrize("name", COMPARED)
def test_gradients_of_strategies_are_that_of_one_process_or_it_is_told_why_not(
    name: str, ranks: StandingRanks, tmp_path: Path
) -> None:
    """A few samples are compared, and a whole batch where they do not do."""
    changes, top, said = COMPARED[name]
    file = edited(tmp_path, f"own_compared_{name}", changes, top)
    found: Checked = ranks(2, check_rank, own_task(file), own_parallel(), WAYS)
    for pattern, warning in zip(said, found.warnings, strict=True):
        assert re.search(pattern, warning)
    assert found.gradients.keys() == (set() if name == "zero" else {"ddp", "allreduce"})
    assert said or max(found.gradients.values()) < 1e-10
    assert "norm" not in name or min(found.gradients.values()) > 1e-3


SAMPLES = {
    "fixed": ("0", "x", "each", False),
    "numpy": ("np.random.rand()", "x", "each", False),
    "plain": ("rng.integers(2)", "x", "each", True),
    "object": ("rng.integers(2)", "types.SimpleNamespace(x=x.numpy())", "torch.as_tensor(each.x)", True),
    "nested": (
        "rng.integers(2)",
        "torch.nested.nested_tensor([x], layout=torch.jagged)",
        "each.unbind()[0]",
        True,
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_augmentation_that_repeats_in_workers_is_noticed_before_samples_are_collated(
    name: str, tmp_path: Path
) -> None:
    """A generator is copied into all workers. Samples may be of any class; collating may need several."""
    drawn, wrapped, unwrapped, repeats = SAMPLES[name]
    collate = (
        "def collate(samples):\n    assert len(samples) > 1\n"
        f"    x = torch.stack([{unwrapped} for each in (sample['x'] for sample in samples)])\n"
        "    return {'x': x, 'y': torch.stack([sample['y'] for sample in samples])}\n\n\n"
    )
    changes = {"x = ": f"x = {drawn} + ", '"x": x,': f'"x": {wrapped},'}
    changes |= {"def dataset": f"{collate}def dataset"}
    top = "import types\n\nimport numpy as np\n\nrng = np.random.default_rng()\n"
    assert repeats_in_workers(own_task(edited(tmp_path, f"own_drawn_{name}", changes, top))) is repeats


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
WHOLE = 'return F.cross_entropy(network(batch["x"]), batch["y"])'
STEP = 'scores = network(batch["x"]); value = F.cross_entropy(scores, batch["y"]); {}; return value'
VIEWED = """\
from torch import nn


class Viewed(nn.Module):
    def forward(self, x):
        return x.view(len(x), -1)
"""

FIRST_STEPS: dict[str, tuple[dict[str, str], list[str]]] = {
    # convolutions of weights that are channels last return maps that cannot be viewed as rows
    "view": (
        {
            "nn.Linear(4, 8), nn.Tanh()": "nn.Conv2d(2, 4, (1, 2), padding=(0, 1)), Viewed()",
            "nn.Linear(8, 3)": "nn.Linear(12, 3)",
            'network(batch["x"])': 'network(batch["x"].view(-1, 2, 1, 2))',
        },
        [],
    ),
    "unused": (
        {
            "nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))": (
                "nn.ModuleDict({'used': nn.Linear(4, 3), 'idle': nn.Linear(4, 3)})"
            ),
            "network(batch": "network['used'](batch",
        },
        [r"idle\.weight.*find_unused_parameters", WRAPPING],
    ),
    "beside": ({"return F.cross": "return network[0].bias.sum() + F.cross"}, [WRAPPING]),
    "graph": ({WHOLE: STEP.format("kept.append(scores)")}, [r"detach\(\)"]),
    "last_graph": ({WHOLE: STEP.format("network.last = value")}, []),  # takes the place of the one before
    "numbers": ({WHOLE: STEP.format("kept.append(value.item()); kept.append(scores.detach())")}, []),
}


@pytest.mark.parametrize("name", FIRST_STEPS)
def test_first_steps_name_unused_parameters_losses_beside_the_network_and_kept_graphs(
    name: str, tmp_path: Path
) -> None:
    changes, said = FIRST_STEPS[name]
    file = edited(tmp_path, f"own_first_{name}", changes, f"{VIEWED}\n\nkept = []\n")
    first = first_step(alone(), own_task(file), own_parallel())
    assert first.unused == (("idle.weight", "idle.bias") if name == "unused" else ())
    for pattern, warning in zip(said, first.warnings, strict=True):
        assert re.search(pattern, warning)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("infinite", "1e400 * value", r"NaN or infinity in the first step.*look at the samples"),
        ("carried", "network.state = getattr(network, 'state', 0) + value", r"own_carried\.py: .*detach\(\)"),
    ],
)
def test_first_steps_that_fail_are_one_line(name: str, value: str, said: str, tmp_path: Path) -> None:
    """A state that is carried on brings the graph of an earlier step with it."""
    file = edited(tmp_path, f"own_{name}", {WHOLE: STEP.format(f"value = {value}")})
    with pytest.raises(TaskError, match=said):
        first_step(alone(), own_task(file), own_parallel())
