"""Which process did something, told from all others, so that its end can be noticed by another one."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class ProcessIdentity:
    """One process among all that ever ran: a pid alone is used again, after a while or after a reboot."""

    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Self:
        """The calling process."""
        return cls(platform.node(), _boot(), os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote. Raises `ValueError`."""
        host, boot, pid, started = text.split("/")
        return cls(host, boot, int(pid), started)

    def __str__(self) -> str:
        return f"{self.host}/{self.boot}/{self.pid}/{self.started}"

    def is_gone(self) -> bool:
        """Whether it ran on this machine and runs no longer; False where that cannot be known from here."""
        if self.host != platform.node():
            return False
        return self.boot != _boot() or self.started != _started(self.pid)


def _boot() -> str:
    """This boot of the machine; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When `pid` was started, in clock ticks since boot; empty for a process that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return "" if state in "ZX" else fields[18]
