"""The command line: what the user can mend is one line, and recipes survive the shell and DVC."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from command_line import Commands
from tiny_data import project_tree
from torch._utils import ExceptionWrapper

from parashot.cli import COMMANDS, GROUPS, main
from parashot.command import guarded
from parashot.errors import DataError, ParashotError, TaskError
from parashot.knobs import apply, arguments
from parashot.params import Params, load_params
from parashot.parsing import parse, read_yaml
from parashot.recipes import DEFAULT, load_recipe, recipe_names

PARAMS = Path(__file__).parents[1] / "params.yaml"


@pytest.mark.parametrize(
    ("fail", "line"),
    [
        (Mock(side_effect=OSError(errno.ENOSPC, "", "a.bin")), "the disk is full while writing a.bin; "),
        (Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")), "the GPU's memory is full; set a "),
        (Mock(side_effect=RuntimeError("DataLoader worker died")), "DataLoader worker died; where shared "),
        (lambda: torch.empty(2**50), "the memory is full; set a smaller train.batchsz"),
        (lambda: np.empty(2**50), "the memory is full; set a smaller train.batchsz"),
    ],
    ids=["disk", "GPU", "shared memory", "torch", "numpy"],
)
def test_what_the_user_can_mend_is_one_line(
    fail: Callable[[], object], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(fail) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {line}")
    assert (printed.err.count("\n"), printed.out) == (1, "")


@pytest.mark.parametrize("kind", [DataError, TaskError])
def test_an_error_of_a_loader_worker_is_the_line_that_it_was(kind: type[ParashotError]) -> None:
    """PyTorch raises it anew, after the text of its traceback."""
    told = "own.py:3, in loss: TaskError: 1.jpg is damaged"
    try:
        raise kind(told) from OSError("a cause")
    except kind:
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(kind) as caught:
        wrapped.reraise()
    assert str(caught.value) == told


def test_success_interrupt_and_a_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: None) == 0
    assert guarded(Mock(side_effect=KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""
    with pytest.raises(ZeroDivisionError):  # with its traceback
        guarded(Mock(side_effect=ZeroDivisionError()))


LIST_RECIPES = """
import sys
from parashot.cli import COMMANDS, GROUPS, main
sys.stdin.read()
status = main(["recipe"])
heavy = {"torch", "mlflow", "numpy", "dvc", "matplotlib", "ray", "hydra", "scipy"}
print(*heavy & {*sys.modules}, file=sys.stderr)
sys.exit(status)
"""


def test_a_reader_that_leaves_is_no_error_and_heavy_packages_stay_out() -> None:
    command = [sys.executable, "-c", LIST_RECIPES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.wait() == 1
        assert process.stderr.read() == b"\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--help"], 0, "  measure   find the fastest way"),
        (["mesure"], 2, "no command mesure; did you mean measure?"),
        (["measure", "a.py", "--budget", "0"], 2, "0 is not between 1 and 1440"),
    ],
)
def test_help_and_wrong_usage(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == status
    printed = capsys.readouterr()
    assert said in (printed.err if status else printed.out)
    assert {name for names in GROUPS.values() for name in names} == COMMANDS.keys()


def test_recipes_are_listed_with_a_line_each(command: Commands) -> None:
    assert [line.split()[0] for line in command("recipe").splitlines()] == recipe_names()
    assert recipe_names()[0] == DEFAULT
    assert [each["name"] for each in json.loads(command("recipe", "--json"))] == recipe_names()


def test_unknown_recipe_is_one_line_and_stops_the_command_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dvc.exceptions import InvalidArgumentError
    from dvc.utils.hydra import apply_overrides

    assert main(["recipe", "miniimagnet"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: recipe 'miniimagnet' is unknown; did you mean miniimagenet? ")
    assert printed.err.count("\n") == 1
    option, override = printed.out.split()
    with pytest.raises(InvalidArgumentError, match="Invalid `--set-param` value"):
        apply_overrides(Path(shutil.copy(PARAMS, tmp_path)), [override])
    assert option == "-S"


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_reaches_params_by_dvc_and_by_the_shell(name: str, tmp_path: Path) -> None:
    """It is a valid set of params, and DVC and a shell hand it on as it is, types and all."""
    from dvc.utils.hydra import apply_overrides

    recipe = load_recipe(name)
    assert recipe.description and recipe.hardware
    words = arguments(recipe.settings)
    assert words[::2] == ["-S"] * (len(words) // 2)
    copied = Path(shutil.copy(PARAMS, tmp_path))
    apply_overrides(copied, words[1::2])
    assert load_params(copied) == parse(Params, project_tree(recipe.settings))
    script = f"set -- {' '.join(words)}; printf '%s\\n' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words


def test_quick_is_the_default_study_and_any_recipe_can_follow_any_other() -> None:
    """It leads back from any recipe to the study of docs/studies/synthetic, whatever params.yaml says."""
    tree = read_yaml(PARAMS.parent / "docs/studies/synthetic/params.yaml")
    quick = load_recipe(DEFAULT).settings
    assert isinstance(tree, dict)
    assert apply(tree, quick) == tree
    owned = project_tree({"data.source": "miniimagenet", "data.archive": "/somewhere/mini"})
    for name in recipe_names():
        settings = load_recipe(name).settings
        assert settings.keys() | {"data.archive"} == quick.keys()
        # the user's copy of the images outlives other recipes
        kept = None if name == DEFAULT else "/somewhere/mini"
        assert apply(owned, settings)["data"]["archive"] == kept
