"""Tracking servers that fail, at real addresses on the loopback."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE_SECONDS = 60


class FaultyServer(ThreadingHTTPServer):
    """Passes on what it is asked to `upstream`, the first `healthy` times, and from then on has its `fault`.

    error: it answers 500. hang: it never answers. drip: its answer never ends. page: it answers with a web
    page. lose: it passes on every request, and answers the first one that makes a run with 500.
    """

    daemon_threads = True

    def __init__(self, fault: str, upstream: str = "", healthy: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault, self.upstream, self.healthy = fault, upstream, healthy
        self.asked: list[str] = []
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def faulty(fault: str, upstream: str = "", healthy: int = 0) -> Iterator[FaultyServer]:
    """A server that listens while the block lasts."""
    server = FaultyServer(fault, upstream, healthy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def refusing_address() -> str:
    """Where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer

    def _answer(self) -> None:
        server = self.server
        server.asked.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if len(server.asked) <= server.healthy:
            self._send(*self._passed_on(body))
        else:
            getattr(self, f"_{server.fault}")(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _error(self, body: bytes) -> None:
        self._send(500, b'{"error_code": "INTERNAL_ERROR", "message": "out of order"}')

    def _hang(self, body: bytes) -> None:
        self.server.over.wait(PATIENCE_SECONDS)

    def _drip(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        while not self.server.over.wait(0.1):
            self.wfile.write(b" ")

    def _page(self, body: bytes) -> None:
        self._send(200, b"<html>Welcome to the network of this hotel</html>")

    def _lose(self, body: bytes) -> None:
        status, answer = self._passed_on(body)
        first = self.path.endswith("runs/create") and self.server.asked.count(self.path) == 1
        self._send(500 if first else status, b"{}" if first else answer)

    def _passed_on(self, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(f"{self.server.upstream}{self.path}", body or None)
        request.get_method = lambda: self.command  # type: ignore[method-assign]
        for name in ("Content-Type", "X-Mlflow-Workspace"):
            if value := self.headers.get(name):
                request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
