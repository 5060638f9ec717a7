"""House rules, read from the source: the direction of imports, and the dependencies of dvc.yaml."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from parashot.knobs import flatten
from parashot.parallel.registry import STRATEGIES
from parashot.params import load_params

ROOT = Path(__file__).parents[1]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]

LAYERS = (
    {"data", "model", "parallel"},
    {"tasks"},
    {"train"},
    {"questions"},
    {"report", "tracking"},
    {"classify", "doctor", "sweep"},
    {"cli"},
)
"""Packages of parashot from the ground up: each imports itself and what lies below its layer. At the
bottom lie the modules beside the packages, and the records.py of any package."""

DOORS = {
    "mlflow": "parashot.tracking",
    "sqlalchemy": "parashot.tracking",
    "yaml": "parashot.parsing",
    "matplotlib": "parashot.report",
    "ray": "parashot.sweep",
    "dvc": "nowhere",
}
"""Libraries that one package alone imports."""

ENVIRONMENT = ("parashot.allocator", "parashot.parallel", "parashot.sweep", "parashot.tracking")
"""What handles variables of glibc, torchrun, Ray and MLflow; all others are handed what they need."""

COMPUTE_NOTHING = {
    "command",
    "errors",
    "files",
    "knobs",
    "lifetime",
    "params",
    "parsing",
    "plain",
    "progress",
    "tracking",
}
"""Parts of parashot that no result depends on, and so no stage."""

MOST_LINES = 450


# --- reading the source -------------------------------------------------------------------------------


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[parts[0] == "src" : -1 if parts[-1] == "__init__" else None])


FILES = {_name(file): file for top in ("src", "stages") for file in (ROOT / top).rglob("*.py")}
"""Modules of the library and of the stages by name."""
LIBRARY = [module for module in FILES if module.startswith("parashot.")]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, also within functions, but those that only a type checker sees."""
    yield node
    typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for child in node.orelse if typing else ast.iter_child_nodes(node):  # type: ignore[attr-defined]
        yield from _executed(child)


@cache
def _imported(module: str) -> frozenset[str]:
    """Modules that `module` itself imports, of the project and of others."""
    found = set()
    for node in _executed(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports in full"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & FILES.keys()) or {node.module or ""}
    return frozenset(found)


@cache
def _reached(start: str) -> frozenset[str]:
    """Modules that importing `start` executes, now or within a function; not by way of stages/common.py."""
    seen, waiting = set(), {start}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        if module in FILES and module != "stages.common":
            waiting |= _imported(module) - seen
    return frozenset(seen)


def _inside(module: str, *packages: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)


def _part(module: str) -> str:
    """Package or module of parashot that `module` belongs to; `stages` for a stage."""
    first, *rest = module.split(".")
    return rest[0] if first == "parashot" and rest else first


def _height(module: str) -> int:
    layers = (number for number, layer in enumerate(LAYERS, 1) if _part(module) in layer)
    if _part(module) in {"stages", "parashot"}:  # the package itself shows names of all layers
        return len(LAYERS) + 1
    return 0 if module.endswith(".records") else next(layers, 0)


def _libraries(modules: frozenset[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


# --- imports ------------------------------------------------------------------------------------------


def test_imports_go_one_way() -> None:
    packages = {file.parent.name for file in (ROOT / "src/parashot").glob("*/__init__.py")}
    assert packages == set().union(*LAYERS)
    wrong = [
        f"{module} imports {other}"
        for module in FILES
        for other in _imported(module) & FILES.keys()
        if _height(other) and _height(other) >= _height(module) and _part(module) != _part(other)
    ]
    assert wrong == []
    TopologicalSorter({module: _imported(module) & FILES.keys() for module in FILES}).prepare()  # no circle


def test_libraries_have_one_door() -> None:
    wrong = [
        f"{module} imports {library}"
        for module in FILES
        for library in _libraries(_imported(module)) & DOORS.keys()
        if not _inside(module, DOORS[library])
    ]
    assert wrong == []


def test_neither_strategies_nor_the_loop_know_the_relation_network() -> None:
    trained = {"data", "model", "tasks"}
    modules = [module for module in FILES if _inside(module, "parashot.parallel", "parashot.train.loop")]
    assert {module: {_part(each) for each in _imported(module)} & trained for module in modules} == {
        module: set() for module in modules
    }
    assert not _imported("parashot.train.loop") & {f"parashot.parallel.{name}" for name in STRATEGIES}


def test_what_reads_results_needs_no_torch() -> None:
    reading = [module for module in FILES if _inside(module, "parashot.report", "stages.summarize")]
    assert [module for module in reading if _libraries(_reached(module)) & {"torch", "mlflow"}] == []
    commands = [f"parashot.cli.{each}" for each in ("recipe", "summary", "advise", "predict", "clean")]
    # all stages but the first import it after they have read params, or not at all
    late = ("train", "pretrain", "warmup", "loader_bench", "strategy_bench", "gain", "batchsz")
    quick = [f"stages.{each}" for each in ("summarize", *late)]
    program = f"import sys, {', '.join([*commands, *quick])}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(done.stdout.split()) & {"torch", "mlflow", "ray"}


def test_servers_import_modules_that_there_are() -> None:
    """A server leaves out what it does not find."""
    nodes = [node for module in FILES for node in ast.walk(_tree(module))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    started = [each for each in calls if ast.unparse(each.func) == "start_early"]
    named = {arg.value for each in started for arg in each.args if isinstance(arg, ast.Constant)}
    assert len(named) == 5
    assert named <= FILES.keys()


def test_the_rules_see_what_is_imported() -> None:
    assert "torch" in _reached("parashot.hardware")  # within a function
    assert "parashot.tracking.store" in _reached("stages.publish")  # by way of a package
    assert "torch" not in _reached("parashot.tracking")  # for the type checker alone


def test_the_library_is_told_everything() -> None:
    wrong = []
    for module in LIBRARY:
        nodes = list(ast.walk(_tree(module)))
        names = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        names |= {f"{ast.unparse(node.func)}()" for node in nodes if isinstance(node, ast.Call)}
        names |= {str(node.value)[:4] for node in nodes if isinstance(node, ast.Constant)}
        forbidden = {"DVC_"}
        if not _inside(module, "parashot.cli", "parashot.command"):
            forbidden |= {"sys.argv", "print()"}
        if not _inside(module, *ENVIRONMENT):
            forbidden |= {"os.environ", "os.getenv", "os.getenv()"}
        wrong += [f"{module}: {name}" for name in names & forbidden]
    assert wrong == []


def test_no_file_is_long() -> None:
    tops = ("src", "stages", "tests", "tools", "benchmarks", "examples")
    files = [file for top in tops for file in (ROOT / top).rglob("*.py")]
    lines = {str(file): file.read_text(encoding="utf-8").count("\n") for file in files}
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}


# --- dvc.yaml -----------------------------------------------------------------------------------------


def test_every_stage_is_a_short_script() -> None:
    scripts = {
        module for module in FILES if _inside(module, "stages") and "__main__" in ast.unparse(_tree(module))
    }
    assert {f"python -m {module}" for module in scripts} == {
        " ".join(stage["cmd"].split()[:3]) for stage in STAGES.values()
    }
    assert [each for each in scripts if FILES[each].read_text(encoding="utf-8").count("\n") > 80] == []


def test_a_stage_depends_on_the_code_that_it_runs() -> None:
    wrong = []
    for name, stage in STAGES.items():
        if not stage.get("always_changed"):
            code = {ROOT / each for each in stage["deps"] if each.startswith(("src/", "stages/"))}
            modules = (_reached(stage["cmd"].split()[2]) & FILES.keys()) - {"parashot"}
            files = {FILES[each] for each in modules if _part(each) not in COMPUTE_NOTHING}
            missing = [each for each in files if not code & {each, *each.parents}]
            wrong += [f"{name} does not depend on {each}" for each in sorted(missing)]
            wrong += [f"{name}: no {each}" for each in code if not each.exists()]
    assert wrong == []


def test_params_of_a_stage_are_knobs_or_sections() -> None:
    keys = flatten(load_params(ROOT / "params.yaml"))
    sections = {key.rsplit(".", count)[0] for key in keys for count in range(key.count(".") + 1)}
    for name, stage in STAGES.items():
        lists = [[each] if isinstance(each, str) else each["params.yaml"] for each in stage.get("params", [])]
        listed = [key for each in lists for key in each or []]
        assert set(listed) <= sections, name
        assert len(set(listed)) == len(listed), f"{name} lists a key twice"


def test_every_strategy_is_trained_and_drawn() -> None:
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    for name in STRATEGIES:
        stage = STAGES[f"train-{name}"]
        assert (stage["cmd"], stage["outs"]) == (f"python -m stages.train {name}", [f"results/train/{name}"])
        assert stage["params"][-1] == f"parallel.{name}"
        assert text.count(f"results/train/{name}/history.csv: ") == 2
