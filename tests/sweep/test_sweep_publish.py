"""Runs of a sweep reach MLflow once, under a study of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_data import tiny_params
from tracked import Checkout, a_run

from parashot.tracking.experiment import PARENT_TAG
from stages import publish


def test_runs_of_a_sweep_are_published_once(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "store", lambda settings: checkout.store)
    monkeypatch.chdir(checkout.root)
    publish.publish_sweeps(tiny_params())
    assert checkout.runs() == {}  # there is no sweep
    for number in range(2):
        checkout.record(f"sweep/key{number}", a_run(f"seed={number}"))
    for _ in range(2):
        publish.publish_sweeps(tiny_params())
        runs = checkout.runs()
        study = runs["sweep on synthetic data"].info.run_id
        above = {name: run.data.tags.get(PARENT_TAG) for name, run in runs.items()}
        assert above == {"sweep on synthetic data": None, "seed=0": study, "seed=1": study}
    assert Path("mlruns").is_dir()
