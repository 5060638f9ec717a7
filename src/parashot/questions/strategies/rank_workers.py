"""Do loader workers work under DDP? The study met an error and set their number to 0."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import distributed as dist

from parashot.data.batches import Plan
from parashot.data.loaders import episode_loader
from parashot.parallel.context import Context
from parashot.params import Params
from parashot.train.assemble import training_episodes

_STEPS, _WORKERS = 2, 2


def workers_work_in_ranks(
    context: Context, params: Params, packed: Path, control: dist.ProcessGroup | None
) -> bool | None:
    """Whether every rank reads the same bytes with workers as without; None where there is one rank."""
    if control is None:
        return None
    batchsz = params.train.batchsz
    plan = Plan(_STEPS * batchsz, batchsz, context.rank, context.ranks)
    episodes = training_episodes(params, packed, plan)
    by_workers = list(episode_loader(episodes, _WORKERS, params.loader.prefetch, torch.device("cpu")))
    same = all(
        torch.equal(batch.support, episodes[step].support) and torch.equal(batch.query, episodes[step].query)
        for step, batch in enumerate(by_workers)
    )
    everyone = [False] * context.ranks
    dist.all_gather_object(everyone, same, group=control)
    return all(everyone)
