"""Stage `pack`: images decoded once, and the episodes of validation and test as tables of rows."""

from parashot.data.episodes import EpisodeSpec
from parashot.data.pack import pack
from parashot.data.splits import read_split
from parashot.progress import passing
from stages.common import PACKED, RAW, SPLIT, params, stage


def main() -> None:
    settings = params()
    episode, evaluate = settings.episode, settings.evaluate
    pack(
        RAW,
        read_split(SPLIT),
        PACKED,
        pack_size=settings.data.pack_size,
        seed=settings.seed,
        spec=EpisodeSpec(episode.n_way, episode.k_shot, evaluate.k_query),
        episodes={"val": evaluate.val_episodes, "test": evaluate.test_episodes},
        progress=passing,
    )


if __name__ == "__main__":
    stage(main)
