"""`parashot init`: a stage of the user's own DVC project that measures his training."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from parashot.cli.arguments import PARAMS, Commands, is_study
from parashot.cli.own_project import PIPELINE, params_with_sections, pipeline_with_stage
from parashot.cli.training import TRAINING
from parashot.errors import UsageError
from parashot.files import replacing_file


def add_parser(commands: Commands) -> None:
    """Add `parashot init`."""
    parser = commands.add_parser(
        "init",
        help="add a stage that measures your training to your own DVC project",
        description=f"Add a stage `measure` to {PIPELINE} of the DVC project in this folder, which runs "
        f"`parashot measure FILE`, and to {PARAMS} its budget and a section `{TRAINING}`, which "
        "`parashot advise --apply` sets. All else in both files stays as it is.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a Python file, as for `parashot measure`")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    file = _file(command.file)
    pipeline, params = pipeline_with_stage(file), params_with_sections(file)
    with replacing_file(PIPELINE) as new_pipeline, replacing_file(PARAMS) as new_params:
        new_pipeline.write_text(pipeline, encoding="utf-8")
        new_params.write_text(params, encoding="utf-8")
    print(f"stage measure is in {PIPELINE}, and what it reads in {PARAMS}; next:")
    print("    dvc repro measure         # in about 10 minutes")
    print(f"    parashot advise --apply   # writes the fastest way into {PARAMS}")


def _file(named: Path) -> Path:
    """Return the file to measure, seen from this folder. Raises `UsageError` where it can have no stage."""
    if not Path(".dvc").is_dir():
        raise UsageError(f"{Path.cwd()}: no DVC project; go to the folder of yours, or run `dvc init` first")
    if is_study():
        raise UsageError(f"{PARAMS} is that of a study; run it in a DVC project of your own")
    if not named.is_file():
        raise UsageError(f"{named}: no such file; name a Python file as for `parashot measure`")
    file = Path(os.path.relpath(named))
    if not re.fullmatch(r"[\w./+-]+", str(file)):
        raise UsageError(f"{file}: {PIPELINE} wants a name of letters, digits and ._+-; rename it")
    return file
