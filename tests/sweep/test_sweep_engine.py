"""What of Ray can be tested without it: that it is missing, or that no cluster answers."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from parashot.errors import DeviceError
from parashot.sweep.engine import Nodes, engine


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"Ray is not installed; run `pip install -e '\.\[sweep\]'`"
    with pytest.raises(DeviceError, match=message), engine(Nodes()):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "host:port"])
def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    ray = ModuleType("ray")
    ray.shutdown = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    message = f"--address {address}: no Ray cluster answers there"
    with pytest.raises(DeviceError, match=message), engine(Nodes(address)):
        pass
