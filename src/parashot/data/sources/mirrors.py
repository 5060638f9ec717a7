"""Mirrors of miniImageNet that need no browser, tried in order until one gives the whole set.

Hosts vanish, refuse, and answer with web pages, and archives that a host generates have no checksum: only
their contents tell whether a mirror has served. What has arrived of a file lies in `NAME.part` until it is
whole, so that a later call, or a later run, asks for the rest alone.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple, cast

from parashot.errors import DataError, one_line
from parashot.progress import passing

log = logging.getLogger(__name__)

ATTEMPTS = 5
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 30.0
MAX_BYTES = 64 * 2**30  # of one download

_MIB = 2**20


class RemoteFile(NamedTuple):
    """One file of a mirror; `md5` where the host publishes one."""

    url: str
    name: str
    md5: str | None = None


Mirrors = Mapping[str, Sequence[RemoteFile]]
"""Host -> the files that together are the data set."""

_ZENODO = "https://zenodo.org/records/7978538/files/mini-imagenet-cache-{}.pkl?download=1"

MIRRORS: Mirrors = {
    "github.com": [
        RemoteFile(
            "https://github.com/Deo0330/split_minidataset/archive/557ebcae.tar.gz", "miniimagenet.tar.gz"
        )
    ],
    "zenodo.org": [
        RemoteFile(_ZENODO.format(part), f"mini-imagenet-cache-{part}.pkl", md5)
        for part, md5 in (
            ("train", "ee4e80dc7b716f3ceec891d199b5277a"),
            ("validation", "c1145a80890b88d54a67d6e0022d53a5"),
            ("test", "389b6c59d348b2e1ae9610f00a5e6724"),
        )
    ],
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
                if not (place / remote.name).exists():
                    log.info("downloading %s", remote.url)
                    fetch(remote, place / remote.name)
            try:
                write(place)
            except DataError:  # not on a full disk: then the download is still good
                shutil.rmtree(place)
                raise
            shutil.rmtree(place)
            return
        except DataError as error:
            failures.append(f"mirror {host}: {error}")
            log.info(failures[-1])
    raise DataError(
        f"miniImageNet could not be downloaded ({' | '.join(failures)}); download it in a browser, for "
        f"example from {' or '.join(BY_HAND)}, and set data.archive to the file"
    )


def fetch(remote: RemoteFile, path: Path) -> None:
    """Download `remote` to `path`, continuing an earlier, broken download of it.

    Raises `DataError` where the host cannot be reached, refuses, sends a web page in place of data or more
    than `MAX_BYTES`, breaks the connection `ATTEMPTS` times, or sends what has another checksum.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS if attempt else 0)
        if _fetch_rest(remote.url, part):
            break
    else:
        raise DataError(f"the connection broke {ATTEMPTS} times; run again to go on from there")
    if remote.md5 is not None:
        with part.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if found != remote.md5:
            part.unlink()
            raise DataError(f"{remote.name} has another md5 than {remote.md5}")
    part.replace(path)


def _fetch_rest(url: str, part: Path) -> bool:
    """Append what is missing to `part`; return whether it is whole now."""
    response = _request(url, part)
    if response is None:
        return False
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        # response.length: what is still to come, None where the host does not say
        while (total := file.tell() + (response.length or 0)) <= MAX_BYTES:
            try:
                chunk = response.read(4 * _MIB)
            except (OSError, HTTPException, ValueError):  # ValueError: chunks without a size
                return False
            if not chunk:
                return not response.length
            if file.tell() == 0 and chunk.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                part.unlink()  # hosts send a page in place of a file that they refuse or lack
                raise DataError("sent an HTML page, not an archive")
            file.write(chunk)
            whole = f" of {total // _MIB}" if response.length is not None else ""
            passing("%s: %d%s MiB", part.stem, file.tell() // _MIB, whole)
    part.unlink()
    raise DataError(f"sends more than {MAX_BYTES // 2**30} GiB")


def _request(url: str, part: Path) -> HTTPResponse | None:
    """Ask for what `part` lacks of `url`; where there is nothing from there on, remove it and return None."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "parashot"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        request = urllib.request.Request(url, headers=headers)
        return cast("HTTPResponse", urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # the file has changed, or was whole
            part.unlink()
            return None
        raise DataError(f"the host answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise DataError(f"the host cannot be reached ({one_line(error)})") from error
