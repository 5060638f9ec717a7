"""params.yaml from anyone: nothing is built, nothing grows, and one line says where to look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import Answered, Refused

from parashot.errors import ParamsError
from parashot.params import load_params, read_yaml

ROOT = Path(__file__).parents[2]
WHOLE = (ROOT / "params.yaml").read_text(encoding="utf-8")


def _laughs(levels: int, item: str = "lol", width: int = 9) -> str:
    lines = [f"a0: &a0 [{', '.join([item] * width)}]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


def _merges(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}], y{level}: 1}}")
    return "\n".join(lines) + "\n"


NOT_READ: dict[str, tuple[str, str]] = {
    "a program": ("a: !!python/object/apply:os.system [touch ran]\n", "at line 1"),
    "a program, new": ("a: !!python/object/new:os.system [touch ran]\n", "at line 1"),
    "a module": ("a: 1\nb: !!python/module:antigravity\n", "at line 2"),
    "a name": ("a: !!python/name:os.system\n", "at line 1"),
    "a tuple of Python": ("a: !!python/tuple [1]\n", "at line 1"),
    "a tag of its own": ("a: !secret x\n", "at line 1"),
    "a tag from afar": ("%TAG ! tag:evil,2000:\n---\na: !x 1\n", "at line 3"),
    "a billion laughs": (_laughs(10), "aliases grow to more than 10000 values"),
    "a billion laughs of merges": (_merges(40), "aliases grow to more than 10000 values"),
    "a billion laughs of keys": (
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} {{? *a{n - 1} : *a{n - 1}}}\n" for n in range(1, 30)),
        "aliases grow to more than",
    ),
    "few aliases of many values": (
        f"a: &a [{', '.join('1' * 1 for _ in range(2_000))}]\nb: [{', '.join(['*a'] * 9)}]\n",
        "aliases grow to more than",
    ),
    "a list in itself": ("a: &a [*a]\n", "aliases grow to more than"),
    "a section in itself": ("a: &a\n  b: *a\n", "aliases grow to more than"),
    "a key that is its section": ("&a ? *a\n: 1\n", "not valid YAML"),
    "an alias of nothing": ("a: *b\n", "at line 1 (found undefined alias 'b')"),
    "lists within lists": ("a: " + "[" * 5_000 + "]" * 5_000, "deeper than 50"),
    "sections within sections": ("{a: " * 5_000 + "1" + "}" * 5_000, "deeper than 50"),
    "sections by indentation": (
        "\n".join(" " * n + "a:" for n in range(500)),
        "deeper than 50",
    ),
    "a key twice": ("seed: 1\nseed: 2\n", "at line 2 (the key 'seed' comes twice)"),
    "a key twice within": ("train:\n  batchsz: 1\n  episodes: 3\n  batchsz: 1\n", "at line 4"),
    "a key twice, once in quotes": ("seed: 1\n'seed': 2\n", "at line 2"),
    "a key twice, hostile": ('"\\e[2J\\u202e": 1\n"\\e[2J\\u202e": 2\n', "comes twice"),
    "a list as a key": ("? [1, 2]\n: 3\n", "at line 1 (found unhashable key)"),
    "two documents": ("seed: 1\n---\nseed: 2\n", "at line 2"),
    "control characters": ("seed: \x07\n", "not valid YAML"),
    "a megabyte": ("# " + "x" * 2**20, "characters, at most 262144 are read"),
    "a number of a million digits": ("seed: " + "9" * 100_000, "not valid YAML"),
    "a date that is none": ("seed: 2001-99-99\n", "not valid YAML"),
    "a binary that is none": ("seed: !!binary '\u00e9'\n", "not valid YAML"),
    "a number that is none": ("seed: !!int ''\n", "not valid YAML"),
    "a truth that is none": ("seed: !!bool maybe\n", "not valid YAML"),
    "a set of lists": ("seed: !!set {? [1]}\n", "not valid YAML"),
    "tabs": ("train:\n\tbatchsz: 1\n", "at line 2"),
    "a web page": ("<!doctype html>\n<p>404: not: found\n", "not valid YAML"),
}


@pytest.mark.parametrize(("text", "message"), NOT_READ.values(), ids=NOT_READ)
def test_not_read(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    refused(ParamsError, lambda: read_yaml(tmp_path / "params.yaml"), "params.yaml: ", message)


def _swap(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


NOT_ALLOWED: dict[str, tuple[str, str]] = {
    "nothing": ("", "None found, a section with keys is needed"),
    "text": ("hello", "'hello' found"),
    "an unknown key": (f"{WHOLE}\nhello: 1\n", "hello: unknown key; known here: seed,"),
    "an unknown key, hostile": (f'{WHOLE}\n"\\e[2J\\n\\u202e": 1\n', r"\x1b[2J\n\u202e': unknown key"),
    "an unknown key, endless": (f"{WHOLE}\n? {'x' * 100_000}\n: 1\n", "unknown key; known here"),
    "a key that is a number": (f"{WHOLE}\n1: 1\n", "1: unknown key"),
    "a key that is nothing": (f"{WHOLE}\n~: 1\n", "None: unknown key"),
    "a key that is a date": (f"{WHOLE}\n2001-01-01: 1\n", "unknown key"),
    "a value of text": (_swap("\nseed: ", "\nseed: x # "), "seed: 'x' is not allowed"),
    "a value that is hostile": (
        _swap("\nseed: ", '\nseed: "\\e[2J\\n\\u202e" # '),
        r"seed: '\x1b[2J\n\u202e' is not allowed",
    ),
    "a value without end": (_swap("\nseed: ", f"\nseed: {'x' * 100_000} # "), "is not allowed"),
    "a value that is NaN": (_swap("\nseed: ", "\nseed: .nan # "), "seed: nan is not allowed"),
    "a value of a thousand digits": (
        _swap("\nseed: ", f"\nseed: 0x{'f' * 9_000} # "),
        "seed: a int too long to show is not allowed",
    ),
    "a value of nested lists": (_swap("\nseed: ", f"\nseed: {'[' * 40}{']' * 40} # "), "is not allowed"),
    "a value that is a section": (_swap("\nseed: ", "\nseed: {a: 1} # "), "seed: {'a': 1} is not allowed"),
    "a section that is a value": (_swap("\nseed: ", "\nseed: 0\ntrain2: # "), "train2: unknown key"),
}


@pytest.mark.parametrize(("text", "message"), NOT_ALLOWED.values(), ids=NOT_ALLOWED)
def test_not_allowed(tmp_path: Path, refused: Refused, text: str, message: str) -> None:
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    refused(ParamsError, lambda: load_params(tmp_path / "params.yaml"), message)


FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_no_file(tmp_path: Path, refused: Refused, make: Callable[[Path], object]) -> None:
    make(tmp_path / "params.yaml")
    refused(ParamsError, lambda: read_yaml(tmp_path / "params.yaml"), "params.yaml: cannot be read")


def test_aliases_that_stay_small_are_read(tmp_path: Path, answered: Answered) -> None:
    (tmp_path / "params.yaml").write_text("a: &a [1, 2]\nb: {c: *a, <<: {d: 1}}\n", encoding="utf-8")
    assert read_yaml(tmp_path / "params.yaml") == {"a": [1, 2], "b": {"c": [1, 2], "d": 1}}
    answered()
