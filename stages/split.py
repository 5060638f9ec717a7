"""Stage `split`: class-disjoint train, val and test."""

from parashot.data.splits import write_split
from stages.common import RAW, SPLIT, params, stage


def main() -> None:
    settings = params()
    tested, trained = settings.tested_episode, settings.training_episode
    write_split(RAW, SPLIT, settings.seed, tested.n_way, max(tested.per_class, trained.per_class))


if __name__ == "__main__":
    stage(main)
