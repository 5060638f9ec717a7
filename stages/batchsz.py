"""Stage `batchsz`: batch sizes, by the study's experiment and by what each reaches in the same time."""

from parashot.parallel.server import IMPORTED_BY_OPTIMIZERS, start_early
from stages.common import EMBEDDING, PACKED, RESULTS, provenance, resolved_params, stage


def main() -> None:
    params = resolved_params()
    start_early(IMPORTED_BY_OPTIMIZERS, "parashot.questions.batchsz.measure")
    from parashot.questions.batchsz.measure import study_batch_sizes  # with torch, which takes seconds

    pretrained = EMBEDDING if params.pretrain.epochs else None
    study_batch_sizes(params, PACKED, pretrained, RESULTS / "batchsz", provenance("batchsz", params))


if __name__ == "__main__":
    stage(main)
