"""How ranks of one host meet: by files in a folder of their launch's own, and on the loopback interface.

Nothing of theirs listens where another machine could knock.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_PREFIX = "parashot-ranks-"


@contextmanager
def launch_folder() -> Iterator[Path]:
    """Yield a folder for one launch; it goes with the block, and those of killed launchers go before it.

    Its name carries this process's number.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*-*"):
        with suppress(OSError, ValueError):  # another user's, or another launcher was faster
            if not psutil.pid_exists(int(folder.name.removeprefix(_PREFIX).split("-")[0])):
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    """A container that shares the folder may have its process where its number means nothing here."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def loopback() -> str | None:
    """The name of this host's loopback interface (`lo`, `lo0`), or None where there is none."""
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and ipaddress.ip_address(each.address).is_loopback:
                return name
    return None
