"""What tests of several folders share; its place lets all of them import `tiny_data`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("parashot", deadline=None)  # no test asserts a time
settings.load_profile("parashot")


@pytest.fixture(scope="session")
def tiny_packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder of the smallest study."""
    from tiny_data import pack_tiny

    return pack_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """A machine of one core: tensors here are so small that several threads would only wait for each other.

    The threads that a training in this process takes for itself are given back.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("parashot.parallel.context.usable_cores", lambda: 1)
        yield
    torch.set_num_threads(before)
