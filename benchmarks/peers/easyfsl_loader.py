"""easyfsl's own loading (github.com/sicara/easy-few-shot-learning): TaskSampler and episodic collate.

It is optional: the extra `peers`. Its images are read by its own `EasySet`, with the same transforms as
the study's method, so that only what makes an episode of them differs. A batch is one episode.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from torch.utils.data import DataLoader, Sampler

from benchmarks.peers.study_loader import study_transform
from parashot.data.episodes import EpisodeSpec


def easyfsl_loader(
    photos: Path, spec: EpisodeSpec, image_size: int, workers: int, prefetch: int
) -> Iterator[Any]:
    """Episodes without end, as easyfsl gives them.

    Support images [n_way * k_shot, 3, h, w], their labels, query images [q, 3, h, w], their labels, classes.
    """
    from easyfsl.datasets import EasySet  # type: ignore[import-untyped, import-not-found, unused-ignore]  # optional
    from easyfsl.samplers import TaskSampler  # type: ignore[import-untyped, import-not-found, unused-ignore]  # optional

    homes = sorted(each for each in photos.iterdir() if each.is_dir())
    specs = {"class_names": [each.name for each in homes], "class_roots": [str(each) for each in homes]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "classes.json"  # which names the folders of the classes
        file.write_text(json.dumps(specs), encoding="utf-8")
        dataset = EasySet(file, image_size, transform=study_transform(image_size))
    # easyfsl 1.5.0 hands `data_source` to torch's Sampler, which takes it no more from torch 2.15 on
    with mock.patch.object(Sampler, "__init__", lambda sampler, data_source=None: None):
        sampler = TaskSampler(dataset, spec.n_way, spec.k_shot, spec.k_query, n_tasks=10**9)
    return iter(
        DataLoader(
            dataset,
            batch_sampler=sampler,
            num_workers=workers,
            prefetch_factor=prefetch if workers else None,
            collate_fn=sampler.episodic_collate_fn,
        )
    )
