"""Is a warm-up of the learning rate needed, and for very large batches alone?

Sizes of a step between a usual one and a very large one train the same episodes, with rates that grow with
the batch, each with and without a warm-up (Goyal et al., Accurate, Large Minibatch SGD, 2017, section 2.2).
Several seeds do so, for what is compared is a matter of luck, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from parashot.files import replacing_folder
from parashot.params import Params
from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.runs import StageRuns
from parashot.records import write_metrics, write_rows, write_runs
from parashot.train.knobs import KNOBS_BESIDE_SIZE

KNOBS = (
    *KNOBS_BESIDE_SIZE,
    "warmup_study",
)


def study_warmup(params: Params, packed: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Run the study of `params.warmup_study`, or record that it is switched off, and write `out`."""
    runs = StageRuns("warm-up", "warmup", params, KNOBS, tags, ["runs.csv"])
    trained: Sequence[WarmupRun] = ()
    if params.warmup_study.enabled:
        from parashot.questions.accuracy.warmup_trainings import train_all  # with torch, which takes seconds

        trained = train_all(params, packed)
    else:
        runs.child("warm-up", {}, {}, {}, reason="warmup_study.enabled is false", status="skipped")
    for size, warm in sorted({(each.batchsz, each.warmup_steps) for each in trained}):
        mine = [each for each in trained if (each.batchsz, each.warmup_steps) == (size, warm)]
        accuracies = [each.val_accuracy for each in mine]
        runs.child(
            f"warm-up batchsz {size}, {warm} of {mine[0].steps} steps",
            {"batchsz": size, "warmup_steps": warm, "learning_rate": mine[0].learning_rate},
            {"val_accuracy": accuracies},
            {"val_accuracy_mean": sum(accuracies) / len(accuracies)},
        )
    with replacing_folder(out) as folder:
        write_rows(folder / "runs.csv", WarmupRun, trained)
        write_metrics(folder / "metrics.json", {"trainings": len(trained)})
        write_runs(folder / "records.jsonl", runs.all({"trainings": len(trained)}))
