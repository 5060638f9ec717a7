"""A training in plain PyTorch, timed by a clock: what people write by hand. Nothing of parashot is imported.

`python benchmarks/plain_training.py FILE WAY SECONDS`, or by torchrun, prints seconds per step. WAY: as
`parashot measure --json` writes the way `advised`.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

STRATEGIES = ("serial", "ddp", "fsdp", "allreduce")
WARMUP = 5
"""Steps before the clock starts, besides the batches that lie ready by then."""


def main(path: str, way_as_json: str, seconds: str) -> None:
    """Train for about so many seconds, and print how long a step took."""
    way = SimpleNamespace(**json.loads(way_as_json))
    if way.strategy not in STRATEGIES or way.precision not in ("fp32", "bf16"):
        sys.exit(f"{way.strategy} in {way.precision} is not written here by hand")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.set_num_threads(way.threads_per_replica)
    file = loaded(Path(path))
    torch.manual_seed(0)  # the same weights in all ranks
    network, forward = made(file.network(), way)
    optimizer = file.optimizer(network.parameters())
    if way.fused:
        taken = inspect.signature(type(optimizer)).parameters
        said = {name: value for name, value in optimizer.defaults.items() if name in taken}
        optimizer = type(optimizer)(network.parameters(), **{**said, "fused": True})
    begin, ready = time.perf_counter(), WARMUP + way.prefetch * way.workers
    steps = last = 0
    for number, batch in enumerate(batches(file, way)):
        if number == 1:  # the first step sets things up
            begin = time.perf_counter()
        if number == ready:
            steps = agreed(float(seconds) * (ready - 1) / (time.perf_counter() - begin))
            begin, last = time.perf_counter(), ready + steps - 1
        with torch.autocast("cpu", torch.bfloat16, enabled=way.precision == "bf16"):
            loss = file.loss(forward, batch)
        loss.backward()
        if way.strategy == "allreduce":
            gradients = [each.grad for each in network.parameters() if each.grad is not None]
            flat = torch.nn.utils.parameters_to_vector(gradients)
            dist.all_reduce(flat.div_(dist.get_world_size()))
            torch.nn.utils.vector_to_parameters(flat, gradients)
        optimizer.step()
        optimizer.zero_grad()
        if steps and number == last:
            break
    if int(os.environ.get("RANK", "0")) == 0:
        print((time.perf_counter() - begin) / steps)
    if dist.is_initialized():
        dist.barrier()  # no rank leaves while another may still talk to it
        dist.destroy_process_group()


def loaded(path: Path) -> Any:
    """Import the user's file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made(network: nn.Module, way: SimpleNamespace) -> tuple[nn.Module, nn.Module]:
    """Return the network, and the module that is called in its place."""
    if way.channels_last:
        network = network.to(memory_format=torch.channels_last)
    if way.compile != "none":
        network.compile()
    if way.strategy == "fsdp":
        fully_shard(network)
    return network, DistributedDataParallel(network) if way.strategy == "ddp" else network


def batches(file: Any, way: SimpleNamespace) -> Iterator[Any]:
    """Yield batches, epoch after epoch."""
    data, ranks = file.dataset(), int(os.environ.get("WORLD_SIZE", "1"))
    sampler: DistributedSampler[Any] | None = DistributedSampler(data) if ranks > 1 else None
    workers = way.workers // ranks
    more = {"prefetch_factor": way.prefetch, "persistent_workers": True} if workers else {}
    size = file.batchsz // ranks
    loader = DataLoader(data, size, sampler is None, sampler, num_workers=workers, drop_last=True, **more)
    for epoch in itertools.count():
        if sampler is not None:
            sampler.set_epoch(epoch)
        yield from loader


def agreed(steps: float) -> int:
    """At least 5 steps, and as many in all ranks as rank 0 says."""
    said = torch.tensor(max(5, math.ceil(steps)))
    if dist.is_initialized():
        dist.broadcast(said, 0)
    return int(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
