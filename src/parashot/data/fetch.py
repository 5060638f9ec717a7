"""Downloads over HTTP that go on where they broke off.

What has arrived lies in `NAME.part` until it is whole, so that a later call, or a later run, asks for the
rest alone.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast

from parashot.errors import DataError, one_line
from parashot.progress import passing

ATTEMPTS = 5
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 30.0
MAX_BYTES = 64 * 2**30
"""Limit of one download."""

_MIB = 2**20


def fetch(url: str, path: Path) -> None:
    """Download `url` to `path`, continuing an earlier, broken download of it.

    Raises `DataError` where the host cannot be reached, refuses, sends a web page in place of data or more
    than `MAX_BYTES`, or breaks the connection `ATTEMPTS` times.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS if attempt else 0)
        if _fetch_rest(url, part):
            part.replace(path)
            return
    arrived = part.stat().st_size if part.exists() else 0
    raise DataError(
        f"the connection broke {ATTEMPTS} times, {arrived // _MIB} MiB arrived; run again to go on from there"
    )


def _fetch_rest(url: str, part: Path) -> bool:
    """Append what is missing to `part`; return whether it is whole now."""
    start = part.stat().st_size if part.exists() else 0
    response = _request(url, start)
    if response is None:  # nothing from `start` on: the file has changed, or was whole
        part.unlink()
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
            if file.tell() == 0 and _is_html(chunk):
                part.unlink()
                raise DataError("sent an HTML page, not an archive")
            file.write(chunk)
            whole = "" if response.length is None else f" of {total // _MIB}"
            passing("%s: %d%s MiB", part.stem, file.tell() // _MIB, whole)
    part.unlink()
    raise DataError(f"sends more than {MAX_BYTES // 2**30} GiB")


def _request(url: str, start: int) -> HTTPResponse | None:
    """Ask for `url` from byte `start` on; return None where there is nothing from there on."""
    headers = {"User-Agent": "parashot", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        return cast("HTTPResponse", urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        raise DataError(f"the host answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise DataError(f"the host cannot be reached ({one_line(error)})") from error


def _is_html(head: bytes) -> bool:
    """Tell a web page by its first bytes: hosts send one in place of a file that they refuse or lack."""
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<?xml"))
