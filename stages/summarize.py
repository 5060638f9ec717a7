"""Stage `summarize`: statistics, claims, advice, figures, and one page to read."""

import json
from pathlib import Path

from parashot.files import write_text
from parashot.questions.results import load_results
from parashot.questions.study import analyse
from parashot.questions.summary import export, metrics
from parashot.records import write_metrics
from parashot.report.page import write_report
from stages.common import PARAMS, REPORTS, RESULTS, params, stage


def main() -> None:
    settings = params()
    study = analyse(load_results(Path(), settings.parallel.strategies), settings)
    write_text(RESULTS / "summary.json", json.dumps(export(study), indent=2, allow_nan=False) + "\n")
    write_metrics(RESULTS / "metrics.json", metrics(study))
    write_report(study, PARAMS.read_text(encoding="utf-8"), REPORTS)


if __name__ == "__main__":
    stage(main)
