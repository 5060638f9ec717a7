"""Copies to a GPU run beside the computing, on a stream of their own, in the order of the steps."""

from __future__ import annotations

import time
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
    large, small = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in (256 * MIB, 1))

    def seconds(pinned: torch.Tensor, products: int, *, prefetched: bool = True) -> float:
        """Median time of steps that copy `pinned` and multiply so many matrices."""
        times = []
        for _ in range(5):
            source = iter([Batch(pinned, 1)] * STEPS)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in cuda_prefetch(source, device) if prefetched else (each.to(device) for each in source):
                for _ in range(products):
                    matrix @ matrix
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return median(times[1:])

    copying = seconds(large, 0)
    products = max(1, round(copying / seconds(small, 1)))  # about as long as the copies
    computing, both = seconds(small, products), seconds(large, products)
    assert both < 0.85 * (copying + computing)
    assert both < 0.85 * seconds(large, products, prefetched=False)
