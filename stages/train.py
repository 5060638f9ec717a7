"""Stages `train-NAME`: a whole training by one strategy.

Also under torchrun: `torchrun ... -m stages.train ddp`.
"""

import sys

from parashot.parallel.torchrun import joined_by_torchrun
from parashot.tracking import Live
from parashot.train.job import Job
from parashot.train.skipped import skip
from stages.common import PACKED, RESULTS, scratch, stage
from stages.settled import PRETRAINED, settled_params
from stages.store import store
from stages.tags import tags


def main() -> None:
    params = settled_params()
    if sys.argv[1:] not in [[name] for name in params.parallel.strategies]:
        sys.exit(
            f"error: python -m stages.train needs one strategy: {' | '.join(params.parallel.strategies)}"
        )
    strategy = sys.argv[1]
    if params.seeds_study.enabled and joined_by_torchrun():
        sys.exit("error: seeds_study.enabled: true, but torchrun's processes train once; set it to false")
    out, live = RESULTS / "train" / strategy, Live(store(params))
    pretrained = PRETRAINED if params.pretrain.epochs else None
    job = Job(strategy, params, PACKED, out, tags(), live, scratch(), pretrained)
    if reason := params.parallel.switched_off(strategy):
        skip(job, reason)
    else:
        from parashot.train.run import train  # with torch, which takes seconds
        from parashot.train.seeds import train_further_seeds

        done = train(job)
        if params.seeds_study.enabled and done is not None and done.status == "ok":
            train_further_seeds(job, train)


if __name__ == "__main__":
    stage(main)
