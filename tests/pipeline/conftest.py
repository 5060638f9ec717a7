"""The smallest study, run once for all tests of its results."""

from __future__ import annotations

import pytest
from checkouts import TINY, Checkout, copy_project, new_repository


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first `dvc repro`, committed. Tests that change it put it back."""
    root = tmp_path_factory.mktemp("studied")
    copy_project(root)
    checkout = new_repository(root, *TINY)
    checkout.run("dvc", "repro")
    checkout.commit()
    return checkout
