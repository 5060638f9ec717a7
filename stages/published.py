"""What stage `publish` brings into MLflow: a study, a network of which there is no report, a sweep."""

from pathlib import Path
from typing import Any

import numpy as np

from parashot.knobs import flatten
from parashot.params import Params
from parashot.records import holds, read_json
from parashot.tracking import LoggableModel, StudyRun
from stages.common import REPORTS, RESULTS, tags

EVALUATED = RESULTS / "evaluate"


def is_reported() -> bool:
    """Whether there is a report, and of what was evaluated last: `dvc exp run ... evaluate` makes none."""
    metrics = RESULTS / "metrics.json"
    if not metrics.exists() or not EVALUATED.exists():
        return metrics.exists()
    evaluated = read_json(EVALUATED / "result.json")["test_accuracy"]
    return bool(read_json(metrics).get("test_accuracy") == evaluated)


def is_current(settings: Params) -> bool:
    """Whether the report is of these params, which may have been changed since."""
    return holds(read_json(RESULTS / "summary.json").get("params"), settings)


def whole_study(settings: Params) -> tuple[StudyRun, list[Path]]:
    """Return the run of the study, and the folders whose runs are below it."""
    numbers = read_json(RESULTS / "metrics.json").items()
    study = _above(
        "study",
        settings,
        params=flatten(settings),
        metrics={key: value for key, value in numbers if not isinstance(value, str)},
        artifacts=[RESULTS / "summary.json", REPORTS],
        note=read_json(RESULTS / "summary.json")["answer"],
    )
    measured = [RESULTS / name for name in ("loader", "strategies", "gain", "batchsz", "warmup")]
    return study, [*_trained(settings), *measured]


def training(settings: Params) -> tuple[StudyRun, list[Path]]:
    """Return the run above those of a network that was trained and evaluated, and their folders."""
    numbers = {
        f"{task}.{key}": value
        for task, values in read_json(EVALUATED / "metrics.json").items()
        for key, value in values.items()
    }
    above = _above("training", settings, params=flatten(settings), metrics=numbers)
    return above, _trained(settings)


def _trained(settings: Params) -> list[Path]:
    """Folders of what a network takes, from the choice of how to compute to its evaluation."""
    trainings = [RESULTS / "train" / name for name in settings.parallel.strategies]
    return [RESULTS / "tune", RESULTS / "pretrain", *trainings, EVALUATED]


def sweep(settings: Params) -> tuple[StudyRun, list[Path]]:
    """Return the run above those of `parashot sweep`, and their folders."""
    # not .KEY.PID.tmp, which a sweep is writing, or was when it was killed
    folders = sorted(path.parent for path in (RESULTS / "sweep").glob("[!.]*/records.jsonl"))
    return _above("sweep", settings), folders


def _above(what: str, settings: Params, **more: Any) -> StudyRun:
    """A run above others, named after its data, and after the experiment of DVC that made it."""
    own, data = tags(), settings.data.source
    experiment = own["dvc.experiment"]
    name = f"{what} on {data} data{f', {experiment}' if experiment else ''}"
    return StudyRun(name, tags={**own, "data": data}, **more)


def model(settings: Params, path: Path) -> LoggableModel:
    """Return a trained network that takes an episode as one array, and noise as its example."""
    from parashot.model.network import EpisodeModel
    from parashot.model.weights import load_network

    episode, network = settings.episode, load_network(path)
    size = network.test_size
    shape = (2, episode.images, 3, size, size)
    example = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return LoggableModel(EpisodeModel(network, episode.n_way, episode.k_shot), example)
