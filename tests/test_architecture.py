"""The house rules, read from the source: who may import whom, and that dvc.yaml names what a stage runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DVC = ROOT / "dvc.yaml"

LAYERS = [
    {
        "errors",
        "command",
        "files",
        "lifetime",
        "opcodes",
        "plain",
        "progress",
        "secrets",
        "params",
        "records",
        "recipes",
        "hardware",
    },
    {"data", "model", "parallel", "tracking"},
    {"train", "findings", "integrity"},
    {"pretrain", "study", "report", "sweep"},
    {"classify", "doctor"},
    {"cli"},
    {""},  # the package itself: the names that it shows
]
"""Parts of parashot from the ground up: a part may import itself and any layer below its own."""

SIDEWAYS = {
    "command": {"errors"},
    "opcodes": set(),
    "plain": set(),
    "secrets": set(),
    "errors": {"plain", "secrets"},
    "progress": {"secrets"},
    "files": set(),
    "lifetime": set(),
    "params": {"errors"},
    "records": {"errors", "files", "plain", "secrets"},
    "recipes": {"errors", "params"},
    "hardware": {"errors", "records"},
    "parallel": {"data", "model"},  # the batch that a step is given, and the parts that some split
}
"""What a part may import within its own layer."""

STAGE_LINES = 60


# --- reading the source -------------------------------------------------------------------------------


def _module_name(file: Path) -> str:
    base = ROOT / "src" if file.is_relative_to(ROOT / "src") else ROOT
    parts = file.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    _module_name(file): file for top in ("src/parashot", "stages") for file in (ROOT / top).rglob("*.py")
}
"""Every module of the project by its name."""


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _walk(node: ast.AST, with_types: bool) -> Iterator[ast.AST]:
    """Every node, also within functions; what only a type checker sees is left out unless asked for."""
    yield node
    children = node.orelse if _is_type_checking(node) and not with_types else ast.iter_child_nodes(node)  # type: ignore[attr-defined]
    for child in children:
        yield from _walk(child, with_types)


@cache
def _imported(module: str, with_types: bool = True) -> frozenset[str]:
    """Names of the modules that `module` itself imports, of the project and of others."""
    found = set()
    for node in _walk(_tree(module), with_types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are written in full"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = names & FILES.keys()
            found |= submodules if submodules == names else submodules | {node.module or ""}
    return frozenset(found)


def _with_packages(module: str) -> set[str]:
    """`module` and the packages it lies in: all are run when it is imported."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def _reached(start: str, with_types: bool = False) -> set[str]:
    """Names of all modules that importing `start` runs, now or within a function."""
    seen: set[str] = set()
    waiting = {start}
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            if module in FILES:
                waiting |= _with_packages(module)
                waiting |= _imported(module, with_types)
    return seen


def _part(module: str) -> str:
    """The part of parashot that `module` belongs to: a folder, or a file beside the folders."""
    return module.split(".")[1] if module.count(".") else ""


def _of(*parts: str) -> list[str]:
    return sorted(module for module in FILES if module.startswith("parashot.") and _part(module) in parts)


def _others(modules: set[str] | frozenset[str]) -> set[str]:
    """Top-level names of what does not belong to the project."""
    return {module.split(".")[0] for module in modules - FILES.keys()} - {"parashot", "stages"}


LIBRARY = sorted(module for module in FILES if module.startswith("parashot"))


# --- who may import whom ------------------------------------------------------------------------------


def test_every_part_has_its_layer() -> None:
    assert {_part(module) for module in LIBRARY} == set().union(*LAYERS)


@pytest.mark.parametrize("module", LIBRARY)
def test_imports_go_one_way(module: str) -> None:
    part = _part(module)
    height = next((number for number, layer in enumerate(LAYERS) if part in layer), -1)
    allowed = {part, *SIDEWAYS.get(part, set())}.union(*LAYERS[: max(height, 0)])
    inner = {each for each in _imported(module) if each.split(".")[0] in {"parashot", "stages"}}
    assert {each for each in inner if each.startswith("stages") or _part(each) not in allowed} == set()


def test_no_module_needs_itself() -> None:
    for module in FILES:
        beyond = {each for each in _imported(module, with_types=False) if each in FILES}
        circle = [each for each in beyond if module in _modules_beyond(each)]
        assert not circle, f"{module} imports {circle}, which import it"


def _modules_beyond(start: str) -> set[str]:
    """Like `_reached`, without the packages: a package that shows what is in it is no circle."""
    seen: set[str] = set()
    waiting = {start}
    while waiting:
        module = waiting.pop()
        if module in FILES and module not in seen:
            seen.add(module)
            waiting |= _imported(module, with_types=False)
    return seen


WITH_TORCH = {
    "data",
    "model",
    "parallel",
    "train",
    "pretrain",
    "study",
    "hardware",
    "tracking",
    "classify",
    "doctor",
}


@pytest.mark.parametrize("module", sorted(FILES))
def test_some_packages_have_one_door(module: str) -> None:
    part, others = _part(module), _others(_imported(module))
    assert "mlflow" not in others or part == "tracking"
    assert "sqlalchemy" not in others or part == "tracking"
    assert "yaml" not in others or module == "parashot.params"
    assert "matplotlib" not in others or part == "report"
    assert "torch" not in others or part in WITH_TORCH
    assert "ray" not in others or module == "parashot.sweep.engine"
    assert "dvc" not in others


@pytest.mark.parametrize("module", _of("findings", "report", "records", "params"))
def test_what_reads_results_never_needs_torch(module: str) -> None:
    assert _others(_reached(module)) & {"torch", "torchvision", "mlflow"} == set()


@pytest.mark.parametrize("module", _of("model"))
def test_the_model_is_torch_alone(module: str) -> None:
    imports = _imported(module)
    assert {_part(each) for each in imports if each in FILES} <= {
        "model",
        "params",
        "errors",
        "files",
        "opcodes",
    }
    assert _others(imports) - sys.stdlib_module_names <= {"torch", "safetensors"}


def test_nothing_is_overlooked() -> None:
    """The rules above are only as good as the imports they see."""
    assert "torch" in _others(_reached("parashot.hardware"))  # imported within a function
    assert "parashot.tracking.experiment" in _reached("stages.publish")  # by way of a package
    assert "parashot.parallel.ddp" in _reached("stages.train")
    assert "torch" not in _others(_reached("parashot.tracking"))  # for the type checker alone


def test_the_report_is_made_without_torch() -> None:
    """Neither the project nor what it uses imports torch."""
    program = (
        "import importlib, sys; [importlib.import_module(each) for each in sys.argv[1:]]; print(*sys.modules)"
    )
    command = [sys.executable, "-c", program, *_of("findings", "report")]
    modules = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "parashot.report" in modules
    assert modules & {"torch", "mlflow"} == set()


def test_a_command_imports_what_it_needs_and_no_more() -> None:
    """Some train: the command line itself, and those that only read, stay without torch."""
    program = "import sys; from parashot.cli import main; main(['recipe']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert "parashot.recipes" in modules
    assert modules & {"torch", "mlflow", "ray"} == set()


def test_to_skip_a_strategy_takes_no_torch() -> None:
    program = "import sys, stages.train; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    modules = set(done.stdout.split())
    assert "parashot.train.skipped" in modules
    assert modules & {"torch", "mlflow"} == set()


# --- what the library leaves to others ----------------------------------------------------------------

ENVIRONMENT = {
    "parashot.secrets",  # values that must not be shown
    "parashot.parallel.context",  # torchrun's variables
    "parashot.parallel.torchrun",
    "parashot.parallel.launch",
    "parashot.sweep.engine",  # Ray's switch, and which GPUs a run sees; none is read
    "parashot.tracking.store",  # MLflow's switches; none is read
}


def _attributes(module: str) -> set[str]:
    """Every dotted name in the source."""
    return {ast.unparse(node) for node in ast.walk(_tree(module)) if isinstance(node, ast.Attribute)}


def _from(module: str, package: str) -> set[str]:
    return {
        alias.name
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }


@pytest.mark.parametrize("module", LIBRARY)
def test_the_library_is_told_everything(module: str) -> None:
    environment = _attributes(module) & {"os.environ", "os.getenv", "os.putenv"}
    assert not environment or module in ENVIRONMENT
    assert _from(module, "os") & {"environ", "getenv", "putenv"} == set()
    assert "sys.argv" not in _attributes(module) or _part(module) == "cli"
    assert "argv" not in _from(module, "sys")


@pytest.mark.parametrize("module", LIBRARY)
def test_the_library_knows_no_dvc_variable_and_prints_nothing(module: str) -> None:
    nodes = list(ast.walk(_tree(module)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {text for text in texts if text.startswith("DVC_")} == set()
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assert "print" not in calls or _part(module) in {"cli", "command"}


# --- stages -------------------------------------------------------------------------------------------


def _stages() -> dict[str, dict[str, Any]]:
    """The stages of dvc.yaml by name; one of many by matrix or foreach stands for all of them."""
    if not DVC.exists():
        return {}
    stages = yaml.safe_load(DVC.read_text(encoding="utf-8"))["stages"]
    return {name: stage.get("do", stage) for name, stage in stages.items()}


STAGES = _stages()


def _script(stage: dict[str, Any]) -> str:
    """The module that a stage runs."""
    python, flag, module = str(stage["cmd"]).split()[:3]
    assert (python, flag) == ("python", "-m"), (
        "a module is run with -m: so it finds the code of its own workspace"
    )
    return module


def _paths(stage: dict[str, Any]) -> set[Path]:
    """Dependencies of a stage that are code."""
    names = [next(iter(each)) if isinstance(each, dict) else each for each in stage.get("deps", [])]
    return {ROOT / name for name in names if name.split("/")[0] in {"src", "stages"}}


def _is_empty(file: Path) -> bool:
    """Whether a module has nothing to run: at most a docstring."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def _data_files(files: set[Path]) -> set[Path]:
    """Files beside the code whose name the code says."""
    named = set()
    for folder in {file.parent for file in files}:
        sources = [file.read_text(encoding="utf-8") for file in files if file.parent == folder]
        beside = [
            each for each in folder.iterdir() if each.is_file() and each.suffix not in {".py", ".typed"}
        ]
        named |= {each for each in beside if any(f'"{each.name}"' in source for source in sources)}
    return named


SHOWCASE = FILES["parashot"]
"""The package itself: names for its users, none of which the project's own code goes by."""


@pytest.mark.parametrize("module", sorted(FILES))
def test_the_project_itself_imports_from_where_things_are(module: str) -> None:
    names = {f"parashot.{name}" for name in _from(module, "parashot")}
    assert names <= FILES.keys()


def _needed(stage: dict[str, Any]) -> set[Path]:
    """Files of the project that a stage runs or reads as code."""
    modules = {FILES[module] for module in _reached(_script(stage)) if module in FILES} - {SHOWCASE}
    return {file for file in modules if not _is_empty(file)} | _data_files(modules)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_what_it_runs(name: str) -> None:
    needed, given = _needed(STAGES[name]), _paths(STAGES[name])
    assert [path for path in given if not path.exists()] == []
    missing = {file for file in needed if not any(file == path or path in file.parents for path in given)}
    idle = {path for path in given if not any(file == path or path in file.parents for file in needed)}
    assert (_said(missing), _said(idle)) == ([], []), "(not among the deps, among them for nothing)"


def _said(paths: set[Path]) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_is_glue(name: str) -> None:
    file = FILES[_script(STAGES[name])]
    assert file.is_relative_to(ROOT / "stages")
    assert len(file.read_text(encoding="utf-8").splitlines()) <= STAGE_LINES
    loops = [
        node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.While)
    ]
    assert loops == []


def test_every_stage_script_is_in_the_graph() -> None:
    if not STAGES:
        pytest.skip("there is no dvc.yaml")
    scripts = {module for module in FILES if module.startswith("stages.") and _has_main(module)}
    by_hand = {module for module in scripts if f"-m {module}" in _makefile()}
    assert scripts - by_hand == {_script(stage) for stage in STAGES.values()}


def _makefile() -> str:
    file = ROOT / "Makefile"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _has_main(module: str) -> bool:
    return any(
        isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in _tree(module).body
    )
