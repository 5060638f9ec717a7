"""Detection of torchrun, without torch, which takes seconds to import."""

from __future__ import annotations

import os


def joined_by_torchrun() -> bool:
    """Return whether torchrun started this process, so that its peers are there already."""
    return all(
        name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    )
