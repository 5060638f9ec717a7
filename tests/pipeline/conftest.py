"""The smallest study, run once for the tests of its results."""

from __future__ import annotations

import pytest
from checkouts import TINY, Checkout, make_checkout


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first `dvc repro`, committed. Tests that change it put it back."""
    checkout = make_checkout(tmp_path_factory.mktemp("studied"), *TINY)
    checkout.run("git", "remote", "add", "origin", "https://git.invalid/project.git")
    done = checkout.run("dvc", "repro")
    checkout.log.write_text(done.stdout + done.stderr, encoding="utf-8")
    checkout.run("git", "add", "--all")
    checkout.run("git", "commit", "--quiet", "-m", "studied")
    return checkout
