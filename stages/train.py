"""Stages `train-NAME`: a whole training by one strategy.

Also under torchrun: `torchrun ... -m stages.train ddp`.
"""

import sys

from parashot.parallel.registry import STRATEGIES
from parashot.train.run import Job, train
from stages.common import PACKED, RESULTS, scratch, stage
from stages.live import publish_live
from stages.settled import settled_params
from stages.tags import tags


def main() -> None:
    if sys.argv[1:] not in [[name] for name in STRATEGIES]:
        sys.exit(f"error: python -m stages.train needs one strategy: {' | '.join(STRATEGIES)}")
    strategy = sys.argv[1]
    train(
        Job(strategy, settled_params(), PACKED, RESULTS / "train" / strategy, tags(), publish_live, scratch())
    )


if __name__ == "__main__":
    stage(main)
