"""MLflow's own tracking server in a thread of this process, and servers that fail, on the loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

_REFUSING = socket.socket()
"""Bound and never listening: its port stays taken, and refuses."""


def refusing_address() -> str:
    """Where nobody listens."""
    if _REFUSING.getsockname()[1] == 0:
        _REFUSING.bind(("127.0.0.1", 0))
    return f"http://127.0.0.1:{_REFUSING.getsockname()[1]}"


class Faulty:
    """A WSGI application: passes on to `app` the first `healthy` requests, and from then on has its `fault`.

    error: it answers 500. hang: it answers after two seconds. page: it answers with a web page.
    """

    def __init__(self, fault: str, app: Any = None, healthy: int = 0) -> None:
        self.fault, self.app, self.healthy = fault, app, healthy
        self.requests = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests += 1
        if self.requests <= self.healthy:
            answer: Iterable[bytes] = self.app(environ, start_response)
            return answer
        if self.fault == "hang":
            time.sleep(2)
        status = "200 OK" if self.fault == "page" else "500 Internal Server Error"
        start_response(status, [("Content-Type", "text/html")])
        return [b"<html>Welcome to the network of this hotel</html>"]


def serving(app: Any) -> AbstractContextManager[str]:
    """A server of the WSGI application `app`, as `running` has it."""
    return running(make_server("127.0.0.1", 0, app, threaded=True))


@contextmanager
def running(server: HTTPServer) -> Iterator[str]:
    """Yield the address of a server that listens while the block lasts."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def mlflow_app(folder: Path, database: Path) -> Iterator[Any]:
    """Yield MLflow's own application over a database, with artifacts in `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{database}")
        patch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", "true")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", "mlflow-artifacts:/")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", folder.as_uri())
        from mlflow.server import app

        yield app
