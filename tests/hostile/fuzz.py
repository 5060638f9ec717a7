"""`python -m tests.hostile.fuzz NAME --seconds N`: fuzz a parser by coverage, for as long as you like.

It takes atheris. What it finds becomes a case of the corpus here.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

OBSERVED = ["parashot", "tarfile", "zipfile", "csv", "json", "yaml", "numpy.lib"]
"""Packages whose coverage leads the way."""


def main() -> None:
    """Fuzz until the time is over or something is found; atheris ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit("error: atheris is not installed; get it with `pip install atheris`")
    sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' own modules
    with atheris.instrument_imports(include=OBSERVED):
        from tests.hostile.targets import TARGETS
    if arguments.name not in TARGETS:
        parser.error(f"NAME is one of {', '.join(TARGETS)}")
    target = TARGETS[arguments.name]
    place = Path(tempfile.mkdtemp(prefix="parashot-fuzz-"))
    corpus, folder = place / "corpus", place / "folder"
    corpus.mkdir()
    folder.mkdir()
    for number, data in enumerate(target.whole()):
        (corpus / str(number)).write_bytes(data)

    def one(data: bytes) -> None:
        target.answers(data, folder)

    os.chdir(place)  # what is found is written here
    print(f"inputs, and what is found: {place}", flush=True)
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={arguments.seconds}", "-rss_limit_mb=4096", str(corpus)], one
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
