"""Downloads over HTTP that go on where they broke off.

Only http and https are spoken, also after a redirect, and no public host sends us on into a private
network. What has arrived lies in `NAME.part` until it is whole, so a later call, or a later run, asks for the
rest alone.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, cast

from parashot.data.archives import is_html
from parashot.errors import DataError

ATTEMPTS = 5
PAUSE_SECONDS = 2.0
TIMEOUT_SECONDS = 30.0

MAX_BYTES = 64 * 2**30
"""What is longer, or has no end, is no data set that is known here."""

_CHUNK = 2**18
_PROGRESS_SECONDS = 5.0
_MIB = 2**20


def fetch(url: str, path: Path, progress: Callable[[str], None]) -> None:
    """Download `url` to `path`, continuing an earlier, broken download of it.

    Raises `DataError` where the host cannot be reached, refuses, sends a web page instead of data or more
    than `MAX_BYTES`, or breaks the connection again and again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS * min(attempt, 1))
        if _fetch_rest(url, part, progress):
            part.replace(path)
            return
    arrived = part.stat().st_size if part.exists() else 0
    raise DataError(
        f"the connection broke {ATTEMPTS} times, {arrived // _MIB} MiB arrived; run again to go on from there"
    )


def _fetch_rest(url: str, part: Path, progress: Callable[[str], None]) -> bool:
    """Append what is missing to `part`; return whether it is whole now."""
    start = part.stat().st_size if part.exists() else 0
    response = _request(url, start)
    if response is None:  # the host has nothing from `start` on: the file has changed, or is whole
        part.unlink()
        return False
    with response:
        start = start if response.status == 206 else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and re.fullmatch(r"[0-9]{1,18}", length) else None
        try:
            with part.open("ab" if start else "wb") as file:
                ended = _copy(response, file, start, total, progress)
        except DataError:  # nothing to go on from
            part.unlink()
            raise
    return ended and total in {None, part.stat().st_size}


def _request(url: str, start: int) -> HTTPResponse | None:
    """Ask for `url` from byte `start` on; None where there is nothing from there on."""
    headers = {"User-Agent": "parashot", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        return cast("HTTPResponse", _opener().open(request, timeout=TIMEOUT_SECONDS))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        raise DataError(f"the host answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"the host cannot be reached ({' '.join(str(reason).split())})") from error


def _copy(
    response: HTTPResponse, file: IO[bytes], done: int, total: int | None, progress: Callable[[str], None]
) -> bool:
    """Copy `response` to `file`; return False where the connection broke. Errors of the disk pass through."""
    told = time.monotonic()
    while max(done, total or 0) <= MAX_BYTES:
        try:
            chunk = response.read(_CHUNK)
        except (OSError, HTTPException, ValueError):  # the last over chunks of no size
            return False
        if not chunk:
            return True
        if done == 0 and is_html(chunk):
            raise DataError("sent an HTML page, not an archive")
        file.write(chunk)
        done += len(chunk)
        if time.monotonic() - told >= _PROGRESS_SECONDS:
            told = time.monotonic()
            progress(f"{done // _MIB}{f' of {total // _MIB}' if total else ''} MiB")
    raise DataError(f"sends more than {MAX_BYTES // 2**30} GiB, refused")


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to the web alone, never from https down to http, nor from there to private addresses.

    Within a private network a mirror may redirect as it likes.
    """

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme not in {req.type, "https"}:
            raise DataError(f"redirects to a {scheme}: address, refused")
        if _is_private(newurl) and not _is_private(req.full_url):
            raise DataError(f"redirects to {newurl}, a private address, refused")
        # the stubs ask for the kind of message that http makes, urllib itself for any
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _is_private(url: str) -> bool:
    """Whether the host has an address that is not of the public internet; one without address has none."""
    try:
        found = socket.getaddrinfo(urllib.parse.urlsplit(url).hostname, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return not all(_is_public(str(each[4][0]).partition("%")[0]) for each in found)


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    inner = getattr(parsed, "ipv4_mapped", None) or parsed
    return bool(inner.is_global) and not inner.is_multicast


def _opener() -> urllib.request.OpenerDirector:
    """The usual opener without its handlers of file:, ftp: and data: addresses."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _WebRedirects(),
    ):
        opener.add_handler(handler)
    return opener
