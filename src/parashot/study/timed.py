"""A strategy ready to be timed: inputs lie in memory, and the clock stops when the device is done."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from parashot.data.batches import Batch
from parashot.parallel.strategy import Strategy
from parashot.train.loop import synchronise


@dataclass
class TimedStrategy:
    """A strategy with its batches, uint8 in memory, and the threads it may use on this rank."""

    strategy: Strategy
    batches: list[Batch]
    threads: int

    def seconds(self, steps: int) -> float:
        """Wall time of `steps` steps over the batches in turn.

        A step is the inputs' way to the device, normalisation, forward, backward, exchange and optimizer.
        """
        torch.set_num_threads(self.threads)
        synchronise(self.strategy.context)
        begin = time.perf_counter()
        for step in range(steps):
            self.strategy.step(self.batches[step % len(self.batches)])
        synchronise(self.strategy.context)
        return time.perf_counter() - begin
