"""Stage `publish`: bring every record into MLflow that is not there yet.

Also what DVC restored from its cache.
"""

import logging
from pathlib import Path

import numpy as np

from parashot.params import Params, flatten
from parashot.records import read_json
from parashot.tracking import LoggableModel, Study, publish
from stages.common import REPORTS, RESULTS, params, stage
from stages.store import sparing_the_study, store
from stages.swept import publish_sweeps
from stages.tags import tags


@sparing_the_study()
def main() -> None:
    settings = params()
    publish_sweeps(settings, lambda path: model(path, settings))
    trainings = [RESULTS / "train" / name for name in settings.parallel.strategies]
    study = Study(
        name=f"study on {settings.data.source} data",
        params=flatten(settings),
        tags={**tags(), "data": settings.data.source},
        metrics={
            key: value
            for key, value in read_json(RESULTS / "metrics.json").items()
            if not isinstance(value, str)
        },
        artifacts=[RESULTS / "summary.json", REPORTS],
    )
    names = ("tune", "pretrain", "loader", "strategies", "batchsz", "warmup", "evaluate")
    folders = [RESULTS / name for name in names]
    done = publish(store(settings), study, [*trainings, *folders], lambda path: model(path, settings))
    logging.info("publish: %d runs brought in, %d there already", done.published, done.already_there)


def model(path: Path, settings: Params) -> LoggableModel:
    """A trained network that takes one array holding an episode; noise in that shape is its example."""
    from parashot.model.network import EpisodeModel
    from parashot.model.weights import load_network

    episode, size = settings.episode, settings.model.image_size
    images = episode.n_way * (episode.k_shot + episode.k_query)
    example = np.random.default_rng(0).standard_normal((1, images, 3, size, size), dtype=np.float32)
    return LoggableModel(EpisodeModel(load_network(path), episode.n_way, episode.k_shot), example)


if __name__ == "__main__":
    stage(main)
