"""The docs say what is so: examples run, the reference is the code's, commands and links are real."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import yaml

import parashot
import reference
import results
from parashot.cli import parser
from parashot.cli.shared import SHIPPED
from parashot.knobs import flatten
from parashot.params import load_params
from parashot.recipes import recipe_names

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:    )?((?:dvc|parashot) .*?)(?:\s{2,}#.*| # .*)?$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(page: Path) -> list[list[str]]:
    """Commands that a reader may type, in words; a line that ends in a backslash goes on."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    found = [match.replace("$(", " $( ").replace(")", " ) ") for match in COMMAND.findall(text)]
    return [shlex.split(each) for each in found]


def test_examples_of_the_package_run(tiny_packed: Path, here: Path) -> None:
    (here / "data").mkdir()
    (here / "data/packed").symlink_to(tiny_packed)
    (here / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    text, space = (ROOT / "docs/api.md").read_text(encoding="utf-8"), dict[str, object]()
    for block in PYTHON.findall(text):
        exec(block, space)
    assert [name for name in parashot.__all__ if f"**`{name}`**" not in text] == []
    assert all(callable(getattr(parashot, name)) for name in parashot.__all__)


def test_the_reference_is_that_of_the_code() -> None:
    assert reference.page() == reference.PAGE.read_text(encoding="utf-8"), "make it again: tools/reference.py"


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [
        f"{page.name}: {link}"
        for page, link in links
        if "://" not in link and not (page.parent / link).exists()
    ] == []


def test_commands_name_what_there_is() -> None:
    found = [(page.name, words) for page in PAGES for words in commands(page)]
    assert len(found) > 20
    known = flatten(load_params(ROOT / "params.yaml"))
    for page, words in found:
        for option, value in pairwise(words):
            if option == "-S" and words[0] == "dvc" and "=" in value and value != "key=value":
                assert value.partition("=")[0] in known, f"{page}: {' '.join(words)}"
            if option == "recipe" and value != "NAME":
                assert value in recipe_names(), f"{page}: {' '.join(words)}"
        if words[0] == "parashot" and "NAME" not in words:
            parser().parse_args(words[1:])


def test_pages_of_results_hold_what_was_measured() -> None:
    found = results.trainings()
    text = results.PAGE.read_text(encoding="utf-8")
    assert results.filled(text, results.page_figures(found)) == text, "make it again: tools/results.py"
    card = SHIPPED.with_suffix(".md").read_text(encoding="utf-8")
    assert [each for each in found if results.filled(card, results.card_figures(each, found)) == card]


def test_kept_studies_name_no_folder_of_a_machine() -> None:
    kept = sorted((ROOT / "docs/studies").glob("*/params.yaml"))
    assert len(kept) > 1
    for path in kept:
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["data"]["archive"] in (None, "PATH"), path
