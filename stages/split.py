"""Stage `split`: class-disjoint train, val and test."""

from parashot.data.splits import write_split
from stages.common import RAW, SPLIT, params, stage


def main() -> None:
    settings = params()
    episode = settings.episode
    trained = settings.training_episode
    needed = max(episode.k_shot + settings.evaluate.k_query, trained.k_shot + trained.k_query)
    write_split(RAW, SPLIT, settings.seed, episode.n_way, needed)


if __name__ == "__main__":
    stage(main)
