"""The smallest study there is: the default one with 16 pixels and little of everything, however params.yaml
is turned; and its packed images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from parashot.data.images import encode_jpeg
from parashot.data.pack import pack
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.knobs import apply
from parashot.params import EpisodeSpec, Params
from parashot.parsing import Value, parse
from parashot.recipes import DEFAULT, load_recipe

SEED = 3
IMAGES = 6
CLASSES = {"train": ["a", "b", "c", "d"], "val": ["e", "f", "g"], "test": ["h", "i", "j"]}
EVALUATED = EpisodeSpec(n_way=2, k_shot=1, k_query=3)
PACKED_EPISODES = 11

SETTINGS: dict[str, Value] = {
    **load_recipe(DEFAULT).settings,
    "seed": SEED,
    "data.synthetic.images_per_class": IMAGES,
    "data.synthetic.image_size": 16,
    "episode.n_way": 2,
    "episode.k_shot": 1,
    "episode.k_query": 2,
    "model.image_size": 16,
    "pretrain.epochs": 0,
    "train.episodes": 7,
    "train.batchsz": 3,
    "train.batch_per": "global",
    "train.validate_every": 2,
    "train.val_episodes": 5,
    "parallel.device": "cpu",
    "parallel.replicas": 2,
    "parallel.serial.twin": False,
    "parallel.bench.launches": 1,
    "parallel.bench.seconds": 0.0,
    "loader.prefetch": 1,
    "loader.bench.workers": [2, 0],
    "loader.bench.backends": ["jpeg", "packed", "resident"],
    "loader.bench.batchsz": 2,
    "loader.bench.seconds": 0.0,
    "loader.bench.blocks": 7,
    "batchsz_study.sizes": [2, 4],
    "batchsz_study.baseline": 4,
    "batchsz_study.seeds": 3,
    "batchsz_study.seconds": 0.1,
    "batchsz_study.episodes": 16,
    "evaluate.k_query": EVALUATED.k_query,
    "evaluate.k_shots": [3, 5],  # of 6 images there are not enough for 5
    "evaluate.transductive_episodes": 2,
    "evaluate.val_episodes": PACKED_EPISODES,
    "evaluate.test_episodes": PACKED_EPISODES,
    "tracking.live_seconds": 3600,
}


def tiny_params(settings: Mapping[str, Value] | None = None, **turned: Value) -> Params:
    """The project's params with `SETTINGS`, `settings` and `turned`, where `train__x` is `train.x`."""
    return parse(Params, tiny_tree({**(settings or {}), **dotted(turned)}))


def tiny_tree(settings: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """The same as plain data, as params.yaml holds it."""
    return project_tree({**SETTINGS, **(settings or {})})


def project_tree(settings: Mapping[str, Value]) -> dict[str, Any]:
    """The project's params.yaml as plain data with `settings` applied."""
    return apply(_project(), settings)


@cache
def _project() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "params.yaml").read_text("utf-8"))
    return tree


def dotted(turned: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as knobs: `train__x` is `train.x`."""
    return {name.replace("__", "."): value for name, value in turned.items()}


def pack_colours(folder: Path, classes: Mapping[str, Sequence[str]], size: int) -> Path:
    """Pack noise around a colour for each class, a letter; returns the packed folder."""
    labels = [label for each in classes.values() for label in each]
    names = [f"{number}.jpg" for number in range(IMAGES)]
    images = [RawImage(label, name, _picture(label, name, size)) for label in labels for name in names]
    write_raw(folder / "raw", ImageStream(images))
    split = {
        name: {label: [f"{label}/{each}" for each in names] for label in each}
        for name, each in classes.items()
    }
    pack(folder / "raw", split, folder / "packed", pack_size=size)
    return folder / "packed"


def _picture(label: str, name: str, size: int) -> bytes:
    colour = np.random.default_rng(ord(label)).integers(60, 196, 3)
    noise = np.random.default_rng((ord(label), int(Path(name).stem))).integers(-60, 60, (size, size, 3))
    return encode_jpeg((colour + noise).astype(np.uint8))
