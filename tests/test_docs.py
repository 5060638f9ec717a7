"""The docs say what is so: examples run, the reference is that of the code, commands and links are real."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tiny_data import pack_tiny

from parashot.cli import parser
from parashot.params import knobs
from parashot.recipes import recipe_names

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:    )?((?:dvc|parashot) .*?)(?:\s{2,}#.*| # .*)?$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def commands(page: Path) -> list[list[str]]:
    """What a reader may type, in words; a line that ends in a backslash goes on."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    found = [match.replace("$(", " $( ").replace(")", " ) ") for match in COMMAND.findall(text)]
    return [shlex.split(each) for each in found]


def test_examples_of_the_package_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_tiny(tmp_path)
    (tmp_path / "data").mkdir()
    packed.rename(tmp_path / "data/packed")
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    page = ROOT / "docs/api.md"
    for block in blocks(page, "python"):
        exec(block, space)
    import parashot

    text = page.read_text(encoding="utf-8")
    assert all(f"**`{name}`**" in text for name in parashot.__all__)


def test_the_package_shows_its_names_and_no_others() -> None:
    import parashot

    assert set(parashot.__all__) <= set(dir(parashot))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        parashot.nothing  # noqa: B018


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse words its help in another way from 3.13 on")
def test_the_reference_is_that_of_the_code() -> None:
    done = subprocess.run([sys.executable, "tools/reference.py", "--check"], check=False, cwd=ROOT)
    assert done.returncode == 0, "make it again: python tools/reference.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [each for each in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in each]
    assert [each for each in links if not (page.parent / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_what_there_is(page: Path) -> None:
    for words in commands(page):
        for option, value in pairwise(words):
            if option == "-S" and words[0] == "dvc" and "=" in value and value != "key=value":
                assert value.partition("=")[0] in knobs(), f"{page.name}: {' '.join(words)}"
            if option == "recipe" and value not in {"NAME", ")"} and value.isalpha():
                assert value in recipe_names(), f"{page.name}: {' '.join(words)}"
        if words[0] == "parashot" and "NAME" not in words:
            parser().parse_args(words[1:])


def test_commands_were_found() -> None:
    assert len(commands(ROOT / "README.md")) > 12
    assert len(commands(ROOT / "docs/howto.md")) > 8


def test_page_and_card_of_results_hold_what_was_measured() -> None:
    script = runpy.run_path(str(ROOT / "tools/results.py"))
    found = script["trainings"]()
    text = script["PAGE"].read_text(encoding="utf-8")
    assert script["filled"](text, script["page_figures"](found)) == text, "make it again: tools/results.py"
    card = script["SHIPPED"].with_suffix(".md").read_text(encoding="utf-8")
    shipped = [each for each in found if script["filled"](card, script["card_figures"](each)) == card]
    assert [each["recipe"] for each in shipped] == ["fast-conv4"]
