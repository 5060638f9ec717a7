"""What every hostile input is held to; each that passes is counted for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import Answered, Refused

from parashot.data.images import encode_jpeg

LONGEST = 2_500


@pytest.fixture
def answered(record_property: Callable[[str, object], None]) -> Answered:
    """Count the input of this test: it had the answer it should have."""
    return lambda: record_property("inputs_answered", 1)


@pytest.fixture
def refused(tmp_path: Path, answered: Answered) -> Refused:
    """One printable line of bounded length, and the folder of the test as it was."""

    def check(kind: type[Exception], call: Callable[[], Any], *words: str) -> None:
        before = _contents(tmp_path)
        with pytest.raises(kind) as caught:
            call()
        message = str(caught.value)
        assert message.isprintable()
        assert len(message) < LONGEST
        assert [word for word in words if word not in message] == [], message
        assert _contents(tmp_path) == before
        answered()

    return check


def _contents(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="session")
def jpeg() -> bytes:
    """A small image like any other."""
    return encode_jpeg(np.zeros((8, 8, 3), np.uint8))
