"""Copies to a GPU run beside the computing, on a stream of their own, in the order of the steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import pytest
import torch

from parashot.data.loaders import cuda_prefetch
from parashot.task import Batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here"),
]
STEPS, MIB = 12, 2**20


def batches(size: int = 64 * MIB) -> Iterator[Batch]:
    """Pinned batches that tell their step."""
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    for step in range(STEPS):
        yield Batch((pinned, torch.tensor([step]).pin_memory()), 1)


def test_batches_arrive_in_order_and_whole() -> None:
    device = torch.device("cuda")
    host = [torch.randint(0, 256, (3, 1000), dtype=torch.uint8).pin_memory() for _ in range(STEPS)]
    arrived = list(cuda_prefetch((Batch({"x": each}, 3) for each in host), device))
    assert {each.data["x"].device.type for each in arrived} == {"cuda"}
    assert all(torch.equal(ours.data["x"].cpu(), theirs) for ours, theirs in zip(arrived, host, strict=True))
    assert list(cuda_prefetch(iter([]), device)) == []


def test_copies_overlap_computing() -> None:
    """Copying and computing together take clearly less time than one after the other."""
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)

    def compute() -> None:
        for _ in range(4):
            matrix @ matrix

    def seconds(copies: bool, computes: bool, prefetched: bool = True) -> float:
        source = batches() if copies else iter([Batch(torch.zeros(1).pin_memory(), 1)] * STEPS)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        moved = cuda_prefetch(source, device) if prefetched else (each.to(device) for each in source)
        for _ in moved:
            if computes:
                compute()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    ways = {
        "copying": (True, False),
        "computing": (False, True),
        "both": (True, True),
        "in turn": (True, True, False),
    }
    rounds = {way: [seconds(*arguments) for _ in range(5)][1:] for way, arguments in ways.items()}
    times = {way: median(values) for way, values in rounds.items()}
    assert times["both"] < 0.85 * times["in turn"]
    assert times["both"] < 0.85 * (times["copying"] + times["computing"])
