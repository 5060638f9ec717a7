"""Mirrors of miniImageNet that need no browser, tried in order until one gives the whole set.

Hosts vanish, refuse, and answer with web pages, and archives that a host generates have no checksum: only
their contents tell whether a mirror has served.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parashot.data.fetch import fetch
from parashot.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """One file of a mirror; `md5` where the host publishes one."""

    url: str
    name: str
    md5: str | None = None


Mirrors = Mapping[str, Sequence[RemoteFile]]
"""Host -> the files that together are the data set."""


def _zenodo(part: str, md5: str) -> RemoteFile:
    name = f"mini-imagenet-cache-{part}.pkl"
    return RemoteFile(f"https://zenodo.org/records/7978538/files/{name}?download=1", name, md5)


_GITHUB = "https://github.com/Deo0330/split_minidataset/archive/557ebcae.tar.gz"

MIRRORS: Mirrors = {
    "github.com": (RemoteFile(_GITHUB, "miniimagenet.tar.gz"),),
    "zenodo.org": (
        _zenodo("train", "ee4e80dc7b716f3ceec891d199b5277a"),
        _zenodo("validation", "c1145a80890b88d54a67d6e0022d53a5"),
        _zenodo("test", "389b6c59d348b2e1ae9610f00a5e6724"),
    ),
}

BY_HAND = (
    "https://drive.google.com/file/d/16V_ZlkW4SsnNDtnGmaBRq2OoPmUOc5mY",
    "https://drive.google.com/file/d/1fJAK5WZTjerW7EWHHQAR9pRJVNg1T1Y7",
)
"""Copies that need a browser: torchmeta's tar and Meta-Baseline's pickles."""


def download_from(mirrors: Mirrors, cache: Path, write: Callable[[Path], None]) -> None:
    """Fetch from the first mirror that works and hand its folder to `write`, which checks the contents.

    Broken downloads stay under `cache` for the next run; whole ones are removed, used or useless.
    Raises `DataError` where all mirrors fail.
    """
    failures: list[str] = []
    for host, files in mirrors.items():
        place = cache / host
        try:
            for remote in files:
                _fetch_checked(remote, place / remote.name)
            _write(place, write)
            return
        except DataError as error:
            failures.append(f"mirror {host}: {error}")
            log.info(failures[-1])
    raise DataError(
        f"miniImageNet could not be downloaded ({' | '.join(failures)}); download it in a browser, for "
        f"example from {' or '.join(BY_HAND)}, and set data.archive to the file"
    )


def _fetch_checked(remote: RemoteFile, path: Path) -> None:
    if path.exists():
        return
    log.info("downloading %s", remote.url)
    fetch(remote.url, path)
    if remote.md5 is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if found != remote.md5:
            path.unlink()
            raise DataError(f"{remote.name} has another md5 than {remote.md5}")


def _write(place: Path, write: Callable[[Path], None]) -> None:
    try:
        write(place)
    except DataError:  # not on a full disk: then the download is still good
        shutil.rmtree(place)
        raise
    shutil.rmtree(place)
