"""How ranks find each other: settings from the environment, files and the loopback interface on one host.

On one host nothing of theirs listens where another machine could connect.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

import psutil

from parashot.errors import DeviceError

PREFIX = "PARASHOT_"


@dataclass(frozen=True)
class Rendezvous:
    """How ranks find each other and communicate, and how long they wait for each other.

    backend: auto | gloo | nccl | mpi. init_method: env:// (torchrun), tcp://HOST:PORT or file:///PATH.
    interface: network interface to the other machines; None: the loopback on one machine, else the system's
    choice. max_restarts: how often lost processes are started again.
    """

    backend: str = "auto"
    init_method: str = "env://"
    timeout_seconds: float = 600.0
    interface: str | None = None
    max_restarts: int = 0

    @classmethod
    def from_environment(cls, backend: str) -> Rendezvous:
        """Read PARASHOT_INIT_METHOD, PARASHOT_TIMEOUT_SECONDS and PARASHOT_INTERFACE.

        Raises `DeviceError` where one of them is not what it must be.
        """
        method = os.environ.get(f"{PREFIX}INIT_METHOD", cls.init_method)
        if not re.fullmatch(r"env://|tcp://[^/\s]+:\d{1,5}|file:///\S+", method):
            raise DeviceError(
                f"{PREFIX}INIT_METHOD: {method!r} is no address; set env://, tcp://HOST:PORT or file:///PATH"
            )
        timeout = _number("TIMEOUT_SECONDS", cls.timeout_seconds, low=1)
        return cls(backend, method, timeout, os.environ.get(f"{PREFIX}INTERFACE"))


DEFAULT = Rendezvous()


def restarts_from_environment() -> int:
    """Read PARASHOT_MAX_RESTARTS: how often a training starts lost processes again, by default 3."""
    return int(_number("MAX_RESTARTS", 3, low=0))


def _number(name: str, default: float, low: float) -> float:
    text = os.environ.get(f"{PREFIX}{name}", str(default))
    try:
        number = float(text)
    except ValueError:
        number = low - 1
    if not low <= number < float("inf"):
        raise DeviceError(f"{PREFIX}{name}: {text!r} is not allowed; set a number of at least {low:g}")
    return number


def loopback() -> str | None:
    """Name of this host's loopback interface (`lo`, `lo0`), or None where there is none."""
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and ipaddress.ip_address(each.address).is_loopback:
                return name
    return None
