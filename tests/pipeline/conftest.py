"""The smallest study, run once for all tests of its results."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from checkouts import TINY, Checkout, copied, copy_project, new_repository
from filelock import FileLock


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first `dvc repro`, committed. Tests that change it put it back.

    Where several workers run tests, the first makes the study and the others wait for a copy.
    """
    own = tmp_path_factory.mktemp("studied") / "checkout"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return study(own)
    shared = tmp_path_factory.getbasetemp().parent / "studied"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            checkout = study(own)
            part = shared.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            copied(checkout, part).root.rename(shared)
            return checkout
    checkout = copied(Checkout(shared), own)
    checkout.run("git", "checkout", "--quiet", "--", ".")
    checkout.run("dvc", "repro")  # runs nothing again, but publishes to a store of its own
    return checkout


def study(root: Path) -> Checkout:
    """Run the smallest study in a new repository."""
    root.mkdir()
    copy_project(root)
    checkout = new_repository(root)
    checkout.turn(TINY)
    checkout.run("dvc", "repro")
    checkout.commit()
    return checkout
