"""What a run is, in a few lines of Markdown: MLflow shows them beside its name."""

from __future__ import annotations

from collections.abc import Mapping

from parashot.records import Run

_STAGES: Mapping[str, tuple[str, str]] = {
    "tune": (
        "How a step is computed best here, measured before anything is trained: its ways in turn.",
        "One way to compute a step of one replica; a point of `seconds_per_step` is one step.",
    ),
    "pretrain": ("The embedding as a classifier of all training classes, before any episode.", ""),
    "loader-bench": (
        "Loader workers by backend, blocks of all settings in turn. The study's Table 2.",
        "One loader setting; a point of `seconds_per_batch` is one block.",
    ),
    "strategy-bench": (
        "Seconds per step of every strategy, blocks of all of them in turn.",
        "One strategy; a point of `seconds_per_step` is one block.",
    ),
    "batchsz": (
        "Batch sizes under DDP on the same episodes, with the study's time limit.",
        "One batch size; a point of `seconds_per_episode` is one block.",
    ),
    "warmup": (
        "Is a warm-up of the learning rate needed? Trainings of several batch sizes and seeds.",
        "One training, with or without warm-up.",
    ),
    "evaluate": ("The model that validation chose, on the test split, once.", ""),
}
"""By stage: what its own run is, and what those below it are."""

_TRAINING = "A whole training of one strategy, on the same episodes in the same order as all others."
_WORTH_SAYING = ("val_accuracy", "test_accuracy", "seconds", "speedup", "episodes_per_second")


def describe(run: Run) -> str:
    """What the run is, why it is no more than that where it was skipped or stopped, and its main figures."""
    own, below = _STAGES.get(run.stage, ("", ""))
    if run.stage.startswith("train-"):
        own = below = _TRAINING
    parts = [own if run.parent is None else below]
    if reason := run.tags.get("reason"):
        parts.append(f"**{run.status}**: {reason}")
    last = {each.key: each.value for each in run.metrics}
    parts += [f"- {key.replace('_', ' ')}: {last[key]:.4g}" for key in _WORTH_SAYING if key in last]
    return "\n\n".join(part for part in parts if part)
