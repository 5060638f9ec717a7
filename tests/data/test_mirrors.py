"""Downloads from a real server on this machine, which misbehaves in every way hosts do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from copies import as_folder
from running import running

from parashot.data.sources import mirrors as module
from parashot.data.sources.mirrors import BY_HAND, RemoteFile, download_from, fetch
from parashot.errors import DataError

DATA = bytes(range(256)) * 14_000
PAGE = b"<!DOCTYPE html><html><title>Too many requests</title></html>"


class _Host(BaseHTTPRequestHandler):
    """Serves DATA under names that say how."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append((self.path, wanted))
        start = int(wanted[6:-1]) if wanted else 0
        match self.path.strip("/"):
            case "good":
                self._send(DATA, start)
            case "cut":  # after a third of the whole, each time
                self._send(DATA, start, at_most=len(DATA) // 3)
            case "chunked":
                self._answer(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA), "Transfer-Encoding", "chunked")
            case "brokenchunks":
                self._answer(b"%x\r\n%s" % (len(DATA), DATA[:1000]), "Transfer-Encoding", "chunked")
            case "forgetful":  # knows nothing of ranges
                self._answer(DATA, "Content-Length", str(len(DATA)))
            case "dead":
                self._answer(b"", "Content-Length", str(len(DATA)))
            case "html":
                self._answer(PAGE, "Content-Length", str(len(PAGE)))
            case _:
                self.send_error(404)

    def _answer(self, body: bytes, header: str, value: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def _send(self, data: bytes, start: int, at_most: int | None = None) -> None:
        if start >= len(data):
            self.send_error(416)
            return
        rest = data[start:]
        self._answer(rest[:at_most], "Content-Length", str(len(rest)), 206 if start else 200)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _Host.asked.clear()
    with running(ThreadingHTTPServer(("127.0.0.1", 0), _Host)) as address:
        yield address


THIRD = len(DATA) // 3
ARRIVING: dict[str, tuple[str, bytes, list[int]]] = {
    "in chunks": ("chunked", b"", [0]),
    "on from where it broke": ("cut", b"", [0, THIRD, 2 * THIRD, 3 * THIRD]),
    "the rest alone in a later run": ("good", DATA[:1000], [1000]),
    "all again from a host without ranges": ("forgetful", b"something else", [14]),
    "anew where the part is longer": ("good", DATA + b"more", [len(DATA) + 4, 0]),
}


@pytest.mark.parametrize(("name", "part", "starts"), ARRIVING.values(), ids=ARRIVING)
def test_whole_files_arrive(tmp_path: Path, host: str, name: str, part: bytes, starts: list[int]) -> None:
    path = tmp_path / "cache" / "x"
    if part:
        as_folder(path.parent, {"x.part": part})
    fetch(RemoteFile(f"{host}/{name}", "x"), path)
    assert path.read_bytes() == DATA
    assert list(path.parent.iterdir()) == [path]
    assert _Host.asked == [(f"/{name}", f"bytes={start}-" if start else None) for start in starts]


@pytest.mark.parametrize("name", ["dead", "brokenchunks"])
def test_a_host_that_breaks_off_for_ever(tmp_path: Path, host: str, name: str) -> None:
    with pytest.raises(DataError, match="broke 5 times; run again"):
        fetch(RemoteFile(f"{host}/{name}", "x"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/x", "cannot be reached"),
        ("{}/gone", "answered 404 Not Found"),
        ("{}/html", "sent an HTML page, not an archive"),
        ("{}/good", "sends more than"),
        ("{}/chunked", "sends more than"),
    ],
)
def test_what_is_refused_leaves_nothing_to_go_on_from(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", len(DATA) // 2)
    with pytest.raises(DataError, match=message):
        fetch(RemoteFile(url.format(host), "x"), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_md5_is_not_accepted(tmp_path: Path, host: str) -> None:
    good = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    wrong, right = (RemoteFile(f"{host}/good", "x.tar", md5) for md5 in ("0" * 32, good))
    with pytest.raises(DataError, match="another md5"):
        fetch(wrong, tmp_path / "x.tar")
    assert list(tmp_path.iterdir()) == []
    fetch(right, tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == DATA


def _never(place: Path) -> None:
    raise AssertionError(place)


def test_the_next_mirror_is_asked_where_one_fails_or_its_files_are_refused(tmp_path: Path, host: str) -> None:
    """Whole downloads are removed, used or useless."""
    mirrors = {name: [RemoteFile(f"{host}/{name}", "x")] for name in ("gone", "chunked", "good", "cut")}

    def write(place: Path) -> None:
        assert (place / "x").read_bytes() == DATA
        if place.name == "chunked":
            raise DataError("a class is missing")

    download_from(mirrors, tmp_path, write)
    assert [path for path, _ in _Host.asked] == ["/gone", "/chunked", "/good"]
    assert list(tmp_path.rglob("x")) == []


def test_when_all_fail_it_says_what_to_do_by_hand_and_later_asks_for_what_is_missing(
    tmp_path: Path, host: str
) -> None:
    mirrors = {
        name: [RemoteFile(f"{host}/{each}", each) for each in ("good", name)] for name in ("gone", "html")
    }
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            download_from(mirrors, tmp_path, _never)
    for part in ("mirror gone: ", "404", "mirror html: ", "data.archive", *BY_HAND):
        assert part in str(caught.value)
    assert [path for path, _ in _Host.asked] == ["/good", "/gone", "/good", "/html", "/gone", "/html"]


def test_a_full_disk_is_no_fault_of_the_host(tmp_path: Path, host: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "x.tar.part").symlink_to("/dev/full")
    mirrors = {name: [RemoteFile(f"{host}/good", "x.tar")] for name in ("one", "two")}
    with pytest.raises(OSError, match="No space left"):
        download_from(mirrors, tmp_path, _never)
    assert [path for path, _ in _Host.asked] == ["/good"]
