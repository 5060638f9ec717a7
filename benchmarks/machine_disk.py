"""The disk under this checkout: writes that are really there, reads that really come from it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.probes import Probe, Section, bytes_said, in_turn, listing
from benchmarks.scratch import scratch_folder

FILE_BYTES = 256 * 2**20
CHUNK_BYTES = 2**20

_QUICK_BYTES = 2 * 2**20
_SMALL_BYTES = 4096


def measure(quick: bool) -> Section:
    """Write a file, read it without and with the page cache, sync a small one, in turn."""
    with scratch_folder() as folder:
        probes = _probes(
            Sequential(folder / "large", _QUICK_BYTES if quick else FILE_BYTES), folder / "small"
        )
        measured = in_turn(probes, quick)
    return Section([listing("Disk", probes, measured)], measured)


@dataclass(frozen=True)
class Sequential:
    """A file of `length` random bytes, written and read from front to end in chunks; all in bytes/s."""

    path: Path
    length: int

    def write(self) -> float:
        """A new file, on the disk before the clock stops."""
        self.path.unlink(missing_ok=True)
        chunk = os.urandom(CHUNK_BYTES)  # a file system that compresses finds nothing to do
        begin = time.perf_counter()
        with self.path.open("wb") as file:
            for _ in range(self.length // CHUNK_BYTES):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return self.length / (time.perf_counter() - begin)

    def read_from_disk(self) -> float:
        """After the kernel has dropped the file's pages."""
        with self.path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return self.read()

    def read(self) -> float:
        """From the kernel's page cache, where it has the file."""
        chunk = bytearray(CHUNK_BYTES)
        begin = time.perf_counter()
        with self.path.open("rb", buffering=0) as file:
            while file.readinto(chunk):
                pass
        return self.length / (time.perf_counter() - begin)


def _probes(large: Sequential, small: Path) -> list[Probe]:
    """The write comes first in each round, so that the reads find a file."""
    whole = f"{bytes_said(large.length)} in chunks of {bytes_said(CHUNK_BYTES)}"
    return [
        Probe("sequential write", "GB/s", lambda: large.write() / 1e9, f"{whole}, fsync included"),
        Probe(
            "sequential read from disk",
            "GB/s",
            lambda: large.read_from_disk() / 1e9,
            f"{whole}, its pages dropped here (a virtual disk's host may still hold them)",
        ),
        Probe("sequential read from page cache", "GB/s", lambda: large.read() / 1e9, f"{whole}, read before"),
        Probe(
            "fsync of a small file",
            "ms",
            lambda: 1e3 * sync_seconds(small),
            f"{bytes_said(_SMALL_BYTES)} written over, then fsync",
        ),
    ]


def sync_seconds(path: Path) -> float:
    """Seconds until a small write over the same place has reached the disk."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        content = os.urandom(_SMALL_BYTES)
        begin = time.perf_counter()
        os.pwrite(descriptor, content, 0)
        os.fsync(descriptor)
        return time.perf_counter() - begin
    finally:
        os.close(descriptor)
