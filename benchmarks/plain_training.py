"""A training in plain PyTorch, timed by a clock: what people write by hand. Nothing of parashot is imported.

`python benchmarks/plain_training.py FILE`, or by torchrun, prints seconds per step.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

WARMUP = 5
"""Steps before the clock starts, besides the batches that lie ready by then."""


def main() -> None:
    """Train for some seconds, and print how long a step took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--strategy", choices=["serial", "ddp", "fsdp", "allreduce"], default="serial")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="of all ranks")
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    for name in ("channels-last", "fused", "compile"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0, help="time to train")
    chosen = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.set_num_threads(chosen.threads)
    file = loaded(chosen.file)
    torch.manual_seed(0)  # the same weights in all ranks
    network, forward = made(file.network(), chosen)
    optimizer = file.optimizer(network.parameters())
    if chosen.fused:
        optimizer = type(optimizer)(network.parameters(), **{**optimizer.defaults, "fused": True})
    steps, begin = 0, 0.0
    ready = WARMUP + chosen.prefetch * chosen.workers
    for number, batch in enumerate(batches(file, chosen)):
        if number == ready:
            begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=chosen.precision == "bf16"):
            loss = file.loss(forward, batch)
        optimizer.zero_grad()
        loss.backward()
        if chosen.strategy == "allreduce":
            for each in network.parameters():
                if each.grad is not None:
                    dist.all_reduce(each.grad.div_(dist.get_world_size()))
        optimizer.step()
        steps = number + 1 - ready
        if number >= ready and over(time.perf_counter() - begin > chosen.seconds):
            break
    if int(os.environ.get("RANK", "0")) == 0:
        print((time.perf_counter() - begin) / steps)


def loaded(path: Path) -> Any:
    """Import the user's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(network: nn.Module, chosen: argparse.Namespace) -> tuple[nn.Module, nn.Module]:
    """Return the network, and the module that is called in its place."""
    if chosen.channels_last:
        network = network.to(memory_format=torch.channels_last)
    if chosen.compile:
        network.compile()
    if chosen.strategy == "fsdp":
        fully_shard(network)
    return network, DistributedDataParallel(network) if chosen.strategy == "ddp" else network


def batches(file: Any, chosen: argparse.Namespace) -> Iterator[Any]:
    """Yield batches, epoch after epoch."""
    data, ranks = file.dataset(), int(os.environ.get("WORLD_SIZE", "1"))
    sampler: DistributedSampler[Any] | None = DistributedSampler(data) if ranks > 1 else None
    workers = chosen.workers // ranks
    more = {"prefetch_factor": chosen.prefetch, "persistent_workers": True} if workers else {}
    size = file.batchsz // ranks
    loader = DataLoader(data, size, sampler is None, sampler, num_workers=workers, drop_last=True, **more)
    for epoch in itertools.count():
        if sampler is not None:
            sampler.set_epoch(epoch)
        yield from loader


def over(mine: bool) -> bool:
    """Whether the time is over for rank 0; all ranks have to take as many steps."""
    if not dist.is_initialized():
        return mine
    said = torch.tensor(float(mine))
    dist.broadcast(said, 0)
    return bool(said)


if __name__ == "__main__":
    main()
