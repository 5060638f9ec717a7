"""A folder of results as one dataclass whose fields are its files."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, TypeVar

from parashot.records import read_result, read_rows

T = TypeVar("T")


def read_folder(kind: type[T], folder: Path, **given: Any) -> T:
    """Read a dataclass of results: a field of type `tuple[Row, ...]` from NAME.csv, any other from NAME.json.

    A field that has a default may have no file; those that are `given` are not read. Raises `RecordError`.
    """
    hints = typing.get_type_hints(kind)
    found = dict(given)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint, is_table = hints[field.name], typing.get_origin(hints[field.name]) is tuple
        path = folder / f"{field.name}.{'csv' if is_table else 'json'}"
        needed = field.default is dataclasses.MISSING
        if field.name in given or not (needed or path.exists()):
            continue
        row = typing.get_args(hint)[0] if is_table else hint
        found[field.name] = tuple(read_rows(row, path)) if is_table else read_result(row, path)
    return kind(**found)
