"""Downloads from a real server on this machine, which misbehaves in every way hosts do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from hosts import serving

from parashot.data import fetch as fetch_module
from parashot.data.fetch import fetch
from parashot.data.raw import RawManifest
from parashot.data.sources.mirrors import BY_HAND, RemoteFile, download_from
from parashot.errors import DataError

DATA = bytes(range(256)) * 14_000
PAGE = b"<!DOCTYPE html><html><title>Too many requests</title></html>"


class _Host(BaseHTTPRequestHandler):
    """Serves DATA under names that say how."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append((self.path, wanted))
        getattr(self, f"_{self.path.strip('/')}")(int(wanted[6:-1]) if wanted else 0)

    def _good(self, start: int) -> None:
        self._send(DATA, start)

    def _cut(self, start: int) -> None:
        """Break off after a third of the whole, each time."""
        self._send(DATA, start, at_most=len(DATA) // 3)

    def _chunked(self, _: int) -> None:
        self._answer(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DATA), DATA), "Transfer-Encoding", "chunked")

    def _brokenchunks(self, _: int) -> None:
        self._answer(b"%x\r\n%s" % (len(DATA), DATA[:1000]), "Transfer-Encoding", "chunked")

    def _forgetful(self, _: int) -> None:
        """Know nothing of ranges."""
        self._answer(DATA, "Content-Length", str(len(DATA)))

    def _dead(self, _: int) -> None:
        self._answer(b"", "Content-Length", str(len(DATA)))

    def _huge(self, _: int) -> None:
        self._answer(b"", "Content-Length", str(2**40))

    def _html(self, _: int) -> None:
        self._answer(PAGE, "Content-Length", str(len(PAGE)))

    def _gone(self, _: int) -> None:
        self.send_error(404)

    def _tofile(self, _: int) -> None:
        self.send_response(302)
        self.send_header("Location", "file:///etc/passwd")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, body: bytes, header: str, value: str) -> None:
        self.send_response(200)
        self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def _send(self, data: bytes, start: int, at_most: int | None = None) -> None:
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][:at_most])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(fetch_module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _Host.asked.clear()
    with serving(_Host) as address:
        yield address


def _quiet(_: str) -> None:
    pass


@pytest.mark.parametrize("name", ["good", "chunked", "forgetful"])
def test_whole_files_arrive(tmp_path: Path, host: str, name: str) -> None:
    told: list[str] = []
    fetch(f"{host}/{name}", tmp_path / "cache" / "x", told.append)
    assert (tmp_path / "cache" / "x").read_bytes() == DATA
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x"]
    assert told[-1] == ("3 MiB" if name == "chunked" else "3 of 3 MiB")


def test_a_cut_connection_goes_on_where_it_broke(tmp_path: Path, host: str) -> None:
    fetch(f"{host}/cut", tmp_path / "x", _quiet)
    assert (tmp_path / "x").read_bytes() == DATA
    third = len(DATA) // 3
    assert [wanted for _, wanted in _Host.asked[:3]] == [None, f"bytes={third}-", f"bytes={2 * third}-"]


@pytest.mark.parametrize(
    ("part", "name"),
    [(DATA[:1000], "good"), (b"something else", "forgetful"), (DATA + b"more", "good")],
    ids=["the rest alone", "all again from a host without ranges", "anew where the part is longer"],
)
def test_a_later_run_goes_on(tmp_path: Path, host: str, part: bytes, name: str) -> None:
    (tmp_path / "x.part").write_bytes(part)
    fetch(f"{host}/{name}", tmp_path / "x", _quiet)
    assert (tmp_path / "x").read_bytes() == DATA
    assert _Host.asked[0] == (f"/{name}", f"bytes={len(part)}-")


@pytest.mark.parametrize("name", ["dead", "brokenchunks"])
def test_a_host_that_breaks_off_for_ever(tmp_path: Path, host: str, name: str) -> None:
    with pytest.raises(DataError, match="broke 5 times, 0 MiB arrived; run again"):
        fetch(f"{host}/{name}", tmp_path / "x", _quiet)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "answered 404 Not Found"),
        ("html", "sent an HTML page, not an archive"),
        ("huge", "sends more than 64 GiB"),
        ("tofile", "file:///etc/passwd' is not allowed"),
    ],
)
def test_a_host_that_refuses(tmp_path: Path, host: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fetch(f"{host}/{name}", tmp_path / "x", _quiet)
    assert list(tmp_path.iterdir()) == []  # nothing to go on from


def test_a_stream_without_end(tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "MAX_BYTES", len(DATA) // 2)
    with pytest.raises(DataError, match="sends more than"):
        fetch(f"{host}/chunked", tmp_path / "x", _quiet)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "x"])
def test_no_host_there(tmp_path: Path, host: str, url: str) -> None:
    with pytest.raises(DataError, match="cannot be reached"):
        fetch(url, tmp_path / "x", _quiet)


# --- mirrors ----------------------------------------------------------------------------------------------


MANIFEST = RawManifest("miniimagenet", "as found", 84, {}, None, {})


def _whatever(_: Path) -> RawManifest:
    return MANIFEST


def test_a_wrong_md5_is_not_accepted(tmp_path: Path, host: str) -> None:
    good = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    wrong, right = ({"m": [RemoteFile(f"{host}/good", "x.tar", md5)]} for md5 in ("0" * 32, good))
    with pytest.raises(DataError, match="another md5"):
        download_from(wrong, tmp_path, _whatever, _quiet)
    assert download_from(right, tmp_path, _whatever, _quiet) == MANIFEST


def test_when_all_fail_it_says_what_to_do_by_hand(tmp_path: Path, host: str) -> None:
    mirrors = {name: [RemoteFile(f"{host}/{name}", "x.tar")] for name in ("gone", "html")}
    with pytest.raises(DataError) as caught:
        download_from(mirrors, tmp_path, _whatever, _quiet)
    for part in ("mirror gone: ", "404", "mirror html: ", "data.archive", *BY_HAND):
        assert part in str(caught.value)


def test_files_that_are_whole_are_not_asked_for_again(tmp_path: Path, host: str) -> None:
    files = [RemoteFile(f"{host}/good", "one"), RemoteFile(f"{host}/gone", "two")]
    for _ in range(2):
        with pytest.raises(DataError, match="404"):
            download_from({"m": files}, tmp_path, _whatever, _quiet)
    assert [path for path, _ in _Host.asked] == ["/good", "/gone", "/gone"]


def test_a_full_disk_is_no_fault_of_the_host(tmp_path: Path, host: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "x.tar.part").symlink_to("/dev/full")
    mirrors = {name: [RemoteFile(f"{host}/good", "x.tar")] for name in ("one", "two")}
    with pytest.raises(OSError, match="No space left"):
        download_from(mirrors, tmp_path, _whatever, _quiet)
    assert [path for path, _ in _Host.asked] == ["/good"]
