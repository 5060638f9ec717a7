"""`python tools/repeats.py STUDY ...`: do studies of the same code on the same machine say the same?

STUDY: folder of a finished study, each a fresh clone. Prints docs/repeats.md: what each advises, the verdicts
that are the same in all and those that are not, and whatever one decides against another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parashot.questions.claim import BY_TEST
from parashot.questions.text import listed
from results import table

DECIDES = ("holds", "does not hold")
TOPICS = ("strategy", "loader", "computing", "batch size", "accuracy in bf16")


def main(folders: Sequence[str]) -> None:
    """Print the page."""
    studies = [
        json.loads((Path(each) / "results/summary.json").read_text(encoding="utf-8")) for each in folders
    ]
    machine = studies[0]["hardware"]
    print("# The same study, again and again\n")
    commits = listed(sorted({_commit(each) for each in folders}))
    measured = f"{machine['cpu_model']}, {machine['threads']} hardware threads, torch {machine['torch']}"
    print(f"The default study, {len(studies)} times in fresh clones of commit {commits}, one after another")
    print(f"on one machine ({measured}).")
    print("Made by `python tools/repeats.py STUDY ...`, except the remarks; ? means undecided.\n")
    head = ["", *(str(number + 1) for number in range(len(studies)))]
    print(table(head, ["---"] * len(head), list(_rows(studies))))
    print("\nMeasured, with the same verdict in all:\n")
    same = {claim: verdicts[0] for claim, verdicts in _verdicts(studies).items() if len({*verdicts}) == 1}
    for verdict in (*DECIDES, "undecided"):
        if claims := [f"`{claim}`" for claim, each in same.items() if each == verdict]:
            print(f"- {verdict}: {', '.join(claims)}")
    contradictions = [*_contradictions(studies)]
    print(
        "\nDecided in one study and decided otherwise in another: "
        + ("; ".join(contradictions) or "nothing")
        + "."
    )


def _rows(studies: list[Any]) -> Iterator[list[str]]:
    for topic in TOPICS:
        yield [topic, *(_choice(_row(study["advice"], "topic", topic)) for study in studies)]
    yield ["all of it", *(_ratio(study["gain"][1]) for study in studies)]
    for name in ("serial-all-cores", "dp", "ddp"):
        yield [f"speedup of {name}", *(_ratio(study["strategies"][name]) for study in studies)]
    yield ["accuracy of serial, dp and ddp, %", *map(_accuracies, studies)]
    for size in (row["batchsz"] for row in studies[0]["sizes"]):
        yield [f"accuracy in the same time, batchsz {size}", *(_size(study, size) for study in studies)]
    for claim, verdicts in _verdicts(studies).items():
        if len({*verdicts}) > 1:
            yield [claim, *("?" if each == "undecided" else each for each in verdicts)]


def _verdicts(studies: list[Any]) -> dict[str, list[str]]:
    """Verdict of each study on every claim that can be measured here."""
    claims = [claim["id"] for claim in studies[0]["claims"] if claim["measured"] != BY_TEST]
    found = {claim: [_row(study["claims"], "id", claim)["verdict"] for study in studies] for claim in claims}
    return {claim: each for claim, each in found.items() if {*DECIDES, "undecided"} & {*each}}


def _contradictions(studies: list[Any]) -> Iterator[str]:
    for topic in TOPICS:
        advice = [_row(study["advice"], "topic", topic) for study in studies]
        decided = {each["choice"] for each in advice if each["decided"]}
        if len(decided) > 1:
            yield f"{topic}: {' and '.join(sorted(decided))}"
    for claim, verdicts in _verdicts(studies).items():
        if {*verdicts}.issuperset(DECIDES):
            yield claim


def _row(rows: Any, key: str, value: object) -> Any:
    return next(each for each in rows if each[key] == value)


def _choice(advice: Any) -> str:
    return f"{advice['choice']}{'' if advice['decided'] else ' ?'}"


def _ratio(row: Any) -> str:
    return f"{row['speedup']:.2f}× ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"


def _accuracies(study: Any) -> str:
    """Validation accuracies after the trainings by each strategy, in percent."""
    found = [study["strategies"][name]["val_accuracy"] for name in ("serial", "dp", "ddp")]
    return ", ".join(f"{100 * each:.1f}" for each in found)


def _size(study: Any, size: int) -> str:
    row = _row(study["sizes"], "batchsz", size)
    ends = (100 * row[f"val_accuracy{end}"] for end in ("", "_low", "_high"))
    return "{:.1f}% ({:.1f} to {:.1f})".format(*ends)


def _commit(folder: str) -> str:
    arguments = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
