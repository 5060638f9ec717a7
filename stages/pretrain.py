"""Stage `pretrain`: the embedding trained as a classifier first, where params ask for it."""

from parashot.tracking import Live
from parashot.train.skipped import skip_pretraining
from stages.common import EMBEDDING, PACKED, RESULTS, provenance, resolved_params, scratch, stage, store


def main() -> None:
    params, out = resolved_params(), RESULTS / "pretrain"
    origin = provenance("pretrain", params)
    if params.pretrain.epochs == 0:
        skip_pretraining(EMBEDDING, out, origin)
        return
    from parashot.train.job import pretraining_job  # with torch, which takes seconds
    from parashot.train.run import train_on_all_cores

    live = Live(store(params))
    train_on_all_cores(pretraining_job(params, PACKED, EMBEDDING, out, origin, live, scratch()))


if __name__ == "__main__":
    stage(main)
