"""dvc.yaml and params.yaml of the user's own project with what `parashot init` adds to them.

It is added as text, so that all else in these files stays as it was written.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any

from parashot.cli.arguments import PARAMS
from parashot.cli.measure import REPORT
from parashot.cli.training import TRAINING, default_settings
from parashot.errors import ParamsError, UsageError
from parashot.parsing import parse_yaml, read_yaml

PIPELINE = Path("dvc.yaml")
STAGE = """\
# The fastest way to train {file} on this machine; `parashot advise --apply` writes it into {params}.
# Add to deps what else the training reads: your modules, your data.
measure:
  cmd: parashot measure {file} --budget ${{measure.budget}}
  deps:
    - {file}
  params:
    - measure
  metrics:
    - {report}/advice.json: {{cache: false}}
  plots:
    - {report}/finals.csv:
        cache: false
        template: bar_horizontal_sorted
        title: Seconds of all rounds
        x: seconds
        y: way
  outs: # small enough for git
    - {report}/index.html: {{cache: false}}
    - {report}/parts.csv: {{cache: false}}
    - {report}/refining.csv: {{cache: false}}
    - {report}/search.csv: {{cache: false}}
    - {report}/sizes.csv: {{cache: false}}
    - {report}/skipped.csv: {{cache: false}}
    - {report}/ways.csv: {{cache: false}}
"""


def pipeline_with_stage(file: Path) -> str:
    """Return the text of dvc.yaml with the stage. Raises `UsageError` where it has one of this name."""
    tree, text = _read(PIPELINE)
    stage = STAGE.format(file=file.as_posix(), report=REPORT, params=PARAMS)
    stages = tree.get("stages") or {}
    if not isinstance(stages, dict):
        raise ParamsError(f"{PIPELINE}: stages is no section of stages; correct it there")
    if "measure" in stages:
        raise UsageError(f"{PIPELINE} has a stage measure already; rename or remove it there")
    added = parse_yaml(stage, "the stage")
    assert isinstance(added, dict)
    return _checked(PIPELINE, _with_stage(text, stage), {**tree, "stages": {**stages, **added}})


def _with_stage(text: str, stage: str) -> str:
    """Put the stage first: comments stay with the stages that they stand before."""
    found = re.search(r"^stages:[ \t]*(#.*)?\n", text, re.MULTILINE)
    if found is None:
        return f"{text}stages:\n{indent(stage, '  ')}"
    before, after = text[: found.end()], text[found.end() :]
    margin = re.search(r"^ +(?=[^ #\n])", after, re.MULTILINE)
    return f"{before}{indent(stage, margin[0] if margin else '  ')}{after}"


def params_with_sections(file: Path) -> str:
    """Return the text of params.yaml with the sections that it lacks."""
    tree, text = _read(PARAMS)
    sections = {
        "measure": ("of `parashot measure`; budget: minutes", {"budget": 10}),
        TRAINING: ("how to train; `parashot advise --apply` sets it", default_settings(file)),
    }
    added = {name: entries for name, (_, entries) in sections.items() if name not in tree}
    for name, entries in added.items():
        text += f"{name}: # {sections[name][0]}\n{indent(_yaml(entries), '  ')}"
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


def _yaml(entries: Mapping[str, Any]) -> str:
    """Return lines of YAML."""
    from ruamel.yaml import YAML

    stream = io.StringIO()
    YAML().dump(dict(entries), stream)
    return stream.getvalue()
