"""One replica in one process: the base case of every speedup."""

from __future__ import annotations

import torch

from parashot.parallel.strategy import Strategy, weighted_loss
from parashot.task import Batch


class Serial(Strategy):
    """No communication."""

    name = "serial"
    compiles = True
    replicas = 1
    how = "1 process, 1 replica"

    @staticmethod
    def processes(replicas: int) -> int:
        return 1

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        loss, sums = weighted_loss(self.model(batch.data), self.task, batch)
        self.scaler.scale(loss).backward()
        return sums
