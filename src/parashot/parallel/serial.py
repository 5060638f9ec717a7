"""One replica in one process: the base case of every speedup."""

from __future__ import annotations

from parashot.parallel.strategy import Strategy


class Serial(Strategy):
    """No communication."""

    name = "serial"
    compiles = True
    replicas = 1
    how = "1 process, 1 replica"
