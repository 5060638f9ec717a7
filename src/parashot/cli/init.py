"""`parashot init`: a stage of the user's own DVC project that measures his training.

What it adds to dvc.yaml and params.yaml is added as text, so that all else in them stays as it was written.
"""

from __future__ import annotations

import argparse
import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any

from parashot.cli import PARAMS, PIPELINE, REPORT, TRAINING
from parashot.cli.advise import training_settings
from parashot.cli.shared import is_study
from parashot.errors import ParamsError, TaskError, UsageError
from parashot.files import replacing_file
from parashot.knobs import keeping_yaml
from parashot.parsing import parse_yaml, read_yaml

STAGE = """\
# The fastest way to train {training} on this machine; `parashot advise --apply` writes it into {params}.
# Add to deps what else the training reads: your modules, your data.
measure:
  cmd: parashot measure {training} --budget ${{measure.budget}}
  deps:
    - {file}
  params:
    - measure
  metrics:
    - {report}/advice.json: {{cache: false}}
  outs: # small enough for git
    - {report}/finals.csv: {{cache: false}}
    - {report}/index.html: {{cache: false}}
    - {report}/parts.csv: {{cache: false}}
    - {report}/refining.csv: {{cache: false}}
    - {report}/search.csv: {{cache: false}}
    - {report}/sizes.csv: {{cache: false}}
    - {report}/skipped.csv: {{cache: false}}
    - {report}/ways.csv: {{cache: false}}
"""


def run(command: argparse.Namespace) -> None:
    """Add the stage and the sections, or nothing."""
    training, file = _training(command.file)
    pipeline, params = _pipeline_with_stage(training, file), _params_with_sections(training)
    with replacing_file(PIPELINE) as new_pipeline, replacing_file(PARAMS) as new_params:
        new_pipeline.write_text(pipeline, encoding="utf-8")
        new_params.write_text(params, encoding="utf-8")
    print(f"stage measure is in {PIPELINE}, and what it reads in {PARAMS}; next:")
    print("    dvc repro measure         # takes the minutes of measure.budget")
    print(f"    parashot advise --apply   # writes the fastest way into {PARAMS}")


def _training(named: Path) -> tuple[Path, Path]:
    """Return FILE or FILE:NAME to measure, and FILE, seen from this folder.

    Raises `UsageError` or `TaskError`.
    """
    from parashot.tasks.own import split_name

    if not Path(".dvc").is_dir():
        raise UsageError(f"{Path.cwd()}: no DVC project; go to the folder of yours, or run `dvc init` first")
    if is_study():
        raise UsageError(f"{PARAMS} is that of a study; run it in a DVC project of your own")
    file, _ = split_name(named)
    if not file.is_file():
        raise TaskError(f"{file}: no such file; name a Python file as for `parashot measure`")
    training, file = (Path(os.path.relpath(each)) for each in (named, file))
    if not re.fullmatch(r"[\w./+-]+", str(file)):
        raise TaskError(f"{file}: {PIPELINE} wants a name of letters, digits and ._+-; rename it")
    return training, file


def _pipeline_with_stage(training: Path, file: Path) -> str:
    """Return the text of dvc.yaml with the stage first: comments stay with the stages that they stand before.

    Raises `ParamsError` where it has one of this name, or is not laid out in lines.
    """
    tree, text = _read(PIPELINE)
    stage = STAGE.format(training=training.as_posix(), file=file.as_posix(), report=REPORT, params=PARAMS)
    stages = tree.get("stages") or {}
    if not isinstance(stages, dict):
        raise ParamsError(f"{PIPELINE}: stages is no section of stages; correct it there")
    if "measure" in stages:
        raise ParamsError(f"{PIPELINE} has a stage measure already; rename or remove it there")
    added = parse_yaml(stage, "the stage")
    assert isinstance(added, dict)
    found = re.search(r"^stages:[ \t]*(#.*)?\n", text, re.MULTILINE)
    if found is None:
        whole = f"{text}stages:\n{indent(stage, '  ')}"
    else:
        before, after = text[: found.end()], text[found.end() :]
        margin = re.search(r"^ +(?=[^ #\n])", after, re.MULTILINE)
        whole = f"{before}{indent(stage, margin[0] if margin else '  ')}{after}"
    return _checked(PIPELINE, whole, {**tree, "stages": {**stages, **added}})


def _params_with_sections(training: Path) -> str:
    """Return the text of params.yaml with the sections that it lacks; training begins as the plain way."""
    from parashot.parallel.context import resolve_placement
    from parashot.questions.own.candidates import plain_way
    from parashot.questions.own.measure import own_parallel
    from parashot.tasks.own import OwnTask

    tree, text = _read(PARAMS)
    default = plain_way(OwnTask(training), resolve_placement(own_parallel()))
    sections = {
        "measure": ("of `parashot measure`; budget: minutes", {"budget": 10}),
        TRAINING: ("how to train; `parashot advise --apply` sets it", training_settings(asdict(default))),
    }
    measure = tree.get("measure", {"budget": 10})
    if not isinstance(measure, dict) or "budget" not in measure:
        raise ParamsError(f"{PARAMS} has a section measure without the budget of a stage measure; rename it")
    added = {name: entries for name, (_, entries) in sections.items() if name not in tree}
    for name, entries in added.items():
        stream = io.StringIO()
        keeping_yaml().dump(entries, stream)
        text += f"{name}: # {sections[name][0]}\n{indent(stream.getvalue(), '  ')}"
    return _checked(PARAMS, text, {**tree, **added})


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """Return the tree of a YAML file and its text, which ends with its line; empty where there is no file."""
    if not path.exists():
        return {}, ""
    tree, text = read_yaml(path) or {}, path.read_text(encoding="utf-8")
    if not isinstance(tree, dict):
        raise ParamsError(f"{path}: not a file of sections; correct it there, or move it away")
    return tree, text if text.endswith("\n") or not text else f"{text}\n"


def _checked(path: Path, text: str, meant: Mapping[str, Any]) -> str:
    """Return `text` where it says what is meant. Raises `ParamsError` where the file was not in lines."""
    with suppress(ParamsError):
        if parse_yaml(text, path.name) == meant:
            return text
    raise ParamsError(f"{path}: braces at the top, or after `stages:`; write each key on a line of its own")
