"""Stage `pretrain`: the embedding as a classifier, where params ask for it; trainings begin with its file."""

from parashot.pretrain.result import skip_pretraining
from parashot.tracking import Live
from stages.common import PACKED, RESULTS, scratch, stage
from stages.settled import PRETRAINED, settled_params
from stages.store import store
from stages.tags import tags


def main() -> None:
    params, out = settled_params(), RESULTS / "pretrain"
    if params.pretrain.epochs == 0:
        skip_pretraining(params, PRETRAINED, out, tags())
        return
    from parashot.pretrain.run import PretrainJob, pretrain  # with torch, which takes seconds

    pretrain(PretrainJob(params, PACKED, PRETRAINED, out, tags(), Live(store(params)), scratch()))


if __name__ == "__main__":
    stage(main)
