"""Hosts that mean harm, real ones on this machine: what they send is bounded, where they point is checked.

A second one is the proxy of the first ones' public addresses: so a redirect from a public host is one.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
from answers import Answered, Refused

from parashot.data import fetch as fetch_module
from parashot.data.fetch import fetch
from parashot.errors import DataError

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata"
PUBLIC = "http://93.184.215.14"


def _moved(location: str, status: str = "302 Found") -> bytes:
    return f"HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


def _headers(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode("latin-1")


ELSEWHERE = {
    "a file": ("file:///etc/passwd", "file:"),
    "a file with a host": ("file://localhost/etc/passwd", "file:"),
    "ftp": ("ftp://127.0.0.1/x", "redirects to a ftp: address, refused"),
    "data": ("data:text/plain,x", "data:"),
    "a program": ("javascript:alert(1)", "javascript:"),
    "gopher": ("gopher://127.0.0.1/x", "gopher:"),
    "mail": ("mailto:a@b", "mailto:"),
    "jar": ("jar:http://127.0.0.1/x!/y", "jar:"),
    "a hostile scheme": ("x\u00ad+y://z", ""),
    "nowhere": ("http:///x", ""),
    "a port that is none": ("http://127.0.0.1:99999/x", ""),
    "itself for ever": ("/loop", ""),
    "a newline": ("/good\u0085X: y", ""),
}

SENT: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cannot be reached"),
    "noise": (bytes(range(256)), ""),
    "no status": (b"HTTP/1.1\r\n\r\n", ""),
    "a status that is none": (b"HTTP/1.1 abc OK\r\n\r\n", "cannot be reached"),
    "a hostile status": (b"HTTP/1.1 500 \x1b[2J\x9b\r\nContent-Length: 0\r\n\r\n", r"answered 500 \x1b[2J"),
    "a line without end": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "cannot be reached"),
    "headers without end": (_headers(*repeat("X: y", 5_000)), "cannot be reached"),
    "a terabyte": (_headers("Content-Length: 1099511627776"), "sends more than"),
    "a length beyond numbers": (_headers("Content-Length: " + "9" * 5_000) + b"<html>", "HTML page"),
    "a length in other digits": (_headers("Content-Length: \u00b2") + b"<html>", "sent an HTML page"),
    "a negative length": (_headers("Content-Length: -5") + b"<html>", "HTML"),
    "chunks that are none": (_headers("Transfer-Encoding: chunked") + b"zz\r\n", "the connection broke"),
    "a chunk of an exabyte": (
        _headers("Transfer-Encoding: chunked") + b"1000000000000000\r\nx",
        "the connection broke",
    ),
    "a chunk of negative size": (_headers("Transfer-Encoding: chunked") + b"-5\r\nx", "connection broke"),
    "a web page": (_headers("Content-Length: 26") + b"<!DOCTYPE html><p>Quota</p>", "sent an HTML page"),
    "a web page with a mark": (_headers("Content-Length: 9") + b"\xef\xbb\xbf\n<html>", "HTML page"),
    "an error page": (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "answered 403 Forbidden"),
    "a login": (
        b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="\x1b[2J"\r\nContent-Length: 0\r\n\r\n',
        "answered 401",
    ),
    "less than was said": (_headers("Content-Length: 9") + b"x", "the connection broke"),
}

PRIVATE = [
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[fe80::1]",
    "[fd00::1]",
    "[ff02::1]",
    "user:password@127.0.0.1",
]

RESPONSES: dict[str, bytes] = {
    "good": GOOD,
    "loop": _moved("/loop"),
    "next": _moved("/good"),
    "onwards": _moved("http://93.184.215.15/good"),
    **{f"elsewhere{number}": _moved(location) for number, (location, _) in enumerate(ELSEWHERE.values())},
    **{f"sent{number}": data for number, (data, _) in enumerate(SENT.values())},
    **{f"private{number}": _moved(f"http://{host}/x") for number, host in enumerate(PRIVATE)},
    **{f"moved{status}": _moved("http://10.0.0.1/", f"{status} X") for status in (301, 303, 307, 308)},
}


class _Host(socketserver.StreamRequestHandler):
    """Answers each request by the last part of its path, with raw bytes, as a host or as a proxy."""

    def handle(self) -> None:
        name = self.rfile.readline().split()[1].rsplit(b"/", 1)[-1].decode()
        while self.rfile.readline().strip():
            pass
        if name.startswith("endless"):
            self._endless(chunked=name.endswith("chunks"))
        else:
            self.wfile.write(RESPONSES[name])

    def _endless(self, chunked: bool) -> None:
        piece = bytes(2**16)
        self.wfile.write(_headers("Transfer-Encoding: chunked") if chunked else _headers())
        try:
            while True:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        except OSError:  # nobody listens any more
            pass


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are what is tested."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A host of the user's own network."""
    monkeypatch.setattr(fetch_module, "PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with _Server(("127.0.0.1", 0), _Host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def public(host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A public host, as seen by way of a proxy."""
    monkeypatch.setenv("http_proxy", host)
    return PUBLIC


def _quiet(_: str) -> None:
    pass


@pytest.mark.parametrize("number", range(len(ELSEWHERE)), ids=list(ELSEWHERE))
def test_redirects_elsewhere(tmp_path: Path, refused: Refused, host: str, number: int) -> None:
    message = list(ELSEWHERE.values())[number][1]
    refused(DataError, lambda: fetch(f"{host}/elsewhere{number}", tmp_path / "x", _quiet), message)


@pytest.mark.parametrize("number", range(len(SENT)), ids=list(SENT))
def test_what_hosts_send(
    tmp_path: Path, answered: Answered, monkeypatch: pytest.MonkeyPatch, host: str, number: int
) -> None:
    """Refused in one line; only a connection that broke may leave what to go on from."""
    monkeypatch.setattr(fetch_module, "MAX_BYTES", 2**20)
    message = list(SENT.values())[number][1]
    with pytest.raises(DataError) as caught:
        fetch(f"{host}/sent{number}", tmp_path / "x", _quiet)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()
    assert "broke" in str(caught.value) or list(tmp_path.iterdir()) == []
    answered()


@pytest.mark.parametrize("name", ["endless", "endlesschunks"])
def test_streams_without_end(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    monkeypatch.setattr(fetch_module, "MAX_BYTES", 2**20)
    refused(DataError, lambda: fetch(f"{host}/{name}", tmp_path / "x", _quiet), "sends more than", "refused")


@pytest.mark.parametrize("number", range(len(PRIVATE)), ids=PRIVATE)
def test_a_public_host_cannot_send_us_into_a_private_network(
    tmp_path: Path, refused: Refused, public: str, number: int
) -> None:
    call = lambda: fetch(f"{public}/private{number}", tmp_path / "x", _quiet)  # noqa: E731
    refused(DataError, call, "redirects to http://", "a private address, refused")


@pytest.mark.parametrize("status", [301, 303, 307, 308])
def test_whatever_the_status(tmp_path: Path, refused: Refused, public: str, status: int) -> None:
    refused(DataError, lambda: fetch(f"{public}/moved{status}", tmp_path / "x", _quiet), "a private address")


@pytest.mark.parametrize("name", ["good", "next", "onwards"])
def test_public_hosts_may_redirect_to_public_ones(
    tmp_path: Path, answered: Answered, public: str, name: str
) -> None:
    fetch(f"{public}/{name}", tmp_path / "x", _quiet)
    assert (tmp_path / "x").read_bytes() == b"data"
    answered()


def test_a_private_mirror_may_redirect_within(tmp_path: Path, answered: Answered, host: str) -> None:
    fetch(f"{host}/next", tmp_path / "x", _quiet)
    assert (tmp_path / "x").read_bytes() == b"data"
    answered()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "data:,x",
        "/etc/passwd",
        "",
        "http://",
        "http://[::1",
        "x:y",
    ],
)
def test_only_the_web_is_spoken(tmp_path: Path, refused: Refused, host: str, url: str) -> None:
    refused(DataError, lambda: fetch(url, tmp_path / "x", _quiet), "the host cannot be reached")
