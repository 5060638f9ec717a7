"""Stages `train-NAME`: a whole training by one strategy.

Also under torchrun: `torchrun ... -m stages.train ddp`.
"""

import sys

from parashot.parallel.server import joined_by_torchrun
from parashot.tracking import Live
from parashot.train.skipped import skip
from stages.common import EMBEDDING, PACKED, RESULTS, provenance, resolved_params, scratch, stage, store


def main() -> None:
    params, names = resolved_params(), sys.argv[1:]
    if len(names) != 1 or names[0] not in params.parallel.strategies:
        sys.exit(f"error: python -m stages.train takes one of {', '.join(params.parallel.strategies)}")
    if params.seeds_study.enabled and joined_by_torchrun():
        sys.exit("error: seeds_study.enabled: true, but torchrun's processes train once; set it to false")
    (strategy,) = names
    out, origin = RESULTS / "train" / strategy, provenance(f"train-{strategy}", params)
    if reason := params.parallel.switched_off(strategy):
        if joined_by_torchrun():  # asked for by name: no part of a study that can do without it
            sys.exit(f"error: {reason}")
        skip(f"train-{strategy}", strategy, reason, out, origin)
        return
    from parashot.train.job import episode_job  # with torch, which takes seconds
    from parashot.train.run import train
    from parashot.train.seeds import train_repeatedly

    pretrained = EMBEDDING if params.pretrain.epochs else None
    job = episode_job(strategy, params, PACKED, out, origin, Live(store(params)), scratch(), pretrained)
    twin = strategy == "serial" and params.parallel.serial.twin and not joined_by_torchrun()
    seeds = params.seeds_study.seeds if params.seeds_study.enabled else 1
    if twin or seeds > 1:
        train_repeatedly(job, twin=twin, seeds=seeds)
    else:
        train(job)


if __name__ == "__main__":
    stage(main, joins_torchrun=True)
