"""The section `training` of the user's own params.yaml: the way to train, for his code to follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parashot.errors import ParamsError
from parashot.files import replacing_file
from parashot.parsing import read_yaml

TRAINING = "training"
NO_SETTINGS = ("way", "batchsz")
"""Fields of a way that are none: its name, and what the measured file itself says."""


def training_settings(way: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a way that go into the section."""
    return {key: value for key, value in way.items() if key not in NO_SETTINGS}


def default_settings(file: Path) -> dict[str, Any]:
    """Return what people take by default: the first way that `parashot measure` would try here."""
    from parashot.questions.own.candidates import candidates
    from parashot.questions.own.measure import own_parallel
    from parashot.tasks.own import OwnTask

    return training_settings(asdict(candidates(OwnTask(file), own_parallel()).ways[0]))


def write_training(path: Path, way: Mapping[str, Any]) -> None:
    """Set the section in the YAML file at `path`, where it need not be yet; comments and other keys stay.

    Raises `ParamsError`, and leaves the file as it was, where it is no file of sections.
    """
    from ruamel.yaml import YAML  # as `dvc exp run -S` writes it

    plain = read_yaml(path) or {}
    if not isinstance(plain, dict) or not isinstance(plain.get(TRAINING) or {}, dict):
        raise ParamsError(f"{path}: {TRAINING} cannot be a section there; name a YAML file of sections")
    yaml = YAML()
    tree = yaml.load(path) or {}
    tree[TRAINING] = tree.get(TRAINING) or {}
    tree[TRAINING].update(training_settings(way))
    with replacing_file(path) as temporary:
        yaml.dump(tree, temporary)
