"""Stage `publish`: bring every record into MLflow that is not there yet.

Also those that DVC restored from its cache.
"""

import logging
import os
from functools import partial
from pathlib import Path

import numpy as np

from parashot.errors import TrackingError
from parashot.knobs import flatten
from parashot.params import Params
from parashot.records import read_json
from parashot.tracking import LoggableModel, Published, Study, publish
from stages.common import REPORTS, RESULTS, params, stage, store, tags

SWEEPS = RESULTS / "sweep"


def main() -> None:
    settings = params()
    try:
        publish_sweeps(settings)
        if (RESULTS / "metrics.json").exists():  # else nothing but a sweep was run here
            publish_study(settings)
    except TrackingError as error:
        if "DVC_STAGE" not in os.environ:
            raise
        logging.warning("warning: %s", error)  # no more than that: DVC keeps nothing of a study that fails


def publish_study(settings: Params) -> None:
    """Publish the runs of all stages under a run of the study."""
    numbers = read_json(RESULTS / "metrics.json").items()
    study = Study(
        name=f"study on {settings.data.source} data",
        params=flatten(settings),
        tags={**tags(), "data": settings.data.source},
        metrics={key: value for key, value in numbers if not isinstance(value, str)},
        artifacts=[RESULTS / "summary.json", REPORTS],
        note=read_json(RESULTS / "summary.json")["answer"],
    )
    trainings = [f"train/{name}" for name in settings.parallel.strategies]
    measured = ("tune", "pretrain", "loader", "strategies", "gain", "batchsz", "warmup", "evaluate")
    folders = [RESULTS / name for name in (*trainings, *measured)]
    told(publish(store(settings), study, folders, partial(model, settings)))


def publish_sweeps(settings: Params) -> None:
    """Publish the runs of `parashot sweep` under a run of their own."""
    data = settings.data.source
    if folders := sorted(path.parent for path in SWEEPS.glob("*/records.jsonl")):
        study = Study(f"sweep on {data} data", tags={**tags(), "data": data})
        told(publish(store(settings), study, folders))


def told(done: Published) -> None:
    """Log what was brought in."""
    logging.info("publish: %d runs brought in, %d there already", done.published, done.already_there)


def model(settings: Params, path: Path) -> LoggableModel:
    """Return a trained network that takes an episode as one array, and noise as its example."""
    from parashot.model.network import EpisodeModel
    from parashot.model.weights import load_network

    episode, network = settings.episode, load_network(path)
    size = network.test_size
    images = episode.n_way * (episode.k_shot + episode.k_query)
    example = np.random.default_rng(0).standard_normal((1, images, 3, size, size), dtype=np.float32)
    return LoggableModel(EpisodeModel(network, episode.n_way, episode.k_shot), example)


if __name__ == "__main__":
    stage(main)
