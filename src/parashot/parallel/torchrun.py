"""Detection of torchrun, without torch, which takes seconds to import."""

from __future__ import annotations

import os


def joined_by_torchrun() -> bool:
    """Return whether torchrun started this process, so that its peers are there already."""
    return all(
        name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    )


def is_main_process() -> bool:
    """Return whether this process writes for all that torchrun has started."""
    return not joined_by_torchrun() or os.environ["RANK"] == "0"
