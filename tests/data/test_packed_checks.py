"""What a packed folder says of itself is compared, when it is opened, with what is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parashot.data.episodes import SPLITS, SplitName
from parashot.data.manifest import MANIFEST, damaged, read_manifest, verify
from parashot.data.packed import PackedSplit
from parashot.errors import DataError

AGAIN = "; run `dvc repro --force --single-item pack` to make it again"


@pytest.fixture
def packed(tiny_packed: Path, tmp_path: Path) -> Path:
    """A folder to do harm to."""
    shutil.copytree(tiny_packed, tmp_path / "packed")
    return tmp_path / "packed"


def open_all(folder: Path) -> None:
    """Use every part of every split."""
    for name in SPLITS:
        split = PackedSplit(folder, name)
        assert split.images.shape[0] == split.class_sizes.sum()
        assert split.encoded(len(split.images) - 1)
        if name != "train":
            assert split.episodes.max() < len(split.images)


def said(folder: Path) -> str:
    """The one line that opening ends with."""
    with pytest.raises(DataError) as refused:
        open_all(folder)
    assert str(refused.value).isprintable()
    return str(refused.value)


def save(part: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / part, array)


def cut(part: str) -> Callable[[Path], None]:
    return lambda folder: (folder / part).write_bytes((folder / part).read_bytes()[:-1])


def grow(part: str) -> Callable[[Path], None]:
    return lambda folder: (folder / part).write_bytes((folder / part).read_bytes() + b"x")


def with_row(row: int) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        rows = np.load(folder / "val.episodes.npy")
        rows[3, 1, 2] = row
        np.save(folder / "val.episodes.npy", rows)

    return harm


IMAGES = np.zeros((18, 16, 16, 3), np.uint8)
HARMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "images cut off": (cut("val.images.npy"), "val.images.npy: 13951 bytes long, and 13952 are needed"),
    "images longer": (grow("val.images.npy"), "val.images.npy: 13953 bytes long, and 13952 are needed"),
    "images gone": (lambda folder: (folder / "val.images.npy").unlink(), "val.images.npy: [Errno 2] No such"),
    "fewer images": (
        save("val.images.npy", IMAGES[1:]),
        "its shape is (17, 16, 16, 3), and the manifest says",
    ),
    "images of floats": (save("val.images.npy", IMAGES / 2), "val.images.npy: not a packed array of uint8"),
    "images by columns": (save("val.images.npy", np.asfortranarray(IMAGES)), "not a packed array of uint8"),
    "images of objects": (save("val.images.npy", np.array([{}])), "not a packed array of uint8"),
    "no header": (lambda folder: (folder / "val.images.npy").write_bytes(b""), "not a packed array of uint8"),
    "a zip": (
        lambda folder: (folder / "val.images.npy").write_bytes(b"PK\3\4"),
        "not a packed array of uint8",
    ),
    "a folder": (
        lambda folder: ((folder / "val.images.npy").unlink(), (folder / "val.images.npy").mkdir())[1],
        "val.images.npy is a folder",
    ),
    "encoded cut off": (cut("val.encoded.bin"), "val.encoded.bin: "),
    "encoded gone": (lambda folder: (folder / "val.encoded.bin").unlink(), "val.encoded.bin: [Errno 2]"),
    "offsets back": (save("val.offsets.npy", np.array([0, 9, 5, *range(10, 26)])), "does not ascend from 0"),
    "offsets from 1": (save("val.offsets.npy", np.arange(1, 20)), "does not ascend from 0"),
    "offsets too few": (
        save("val.offsets.npy", np.arange(18)),
        "its shape is (18,), and the manifest says (19,)",
    ),
    "sizes not the sum": (
        save("val.sizes.npy", np.array([6, 6, 5])),
        "not the sizes of classes of 18 images",
    ),
    "sizes of none": (save("val.sizes.npy", np.array([9, 0, 9])), "not the sizes of classes of 18 images"),
    "sizes that wrap": (save("val.sizes.npy", np.array([2**63 - 1, 1, 18])), "not the sizes of classes of"),
    "sizes too many": (
        save("val.sizes.npy", np.array([6, 6, 3, 3])),
        "its shape is (4,), and the manifest says (3,)",
    ),
    "a row beyond": (with_row(18), "val.episodes.npy: it has rows beyond the 18 images"),
    "a row below": (with_row(-1), "val.episodes.npy: it has rows beyond the 18 images"),
    "episodes flat": (save("val.episodes.npy", np.zeros((11, 8), np.int32)), "its shape is (11, 8)"),
    "episodes of nothing": (
        save("val.episodes.npy", np.zeros((11, 0, 4), np.int32)),
        "its shape is (11, 0, 4)",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_part_that_is_not_as_the_manifest_says(harm: str, packed: Path) -> None:
    open_all(packed)
    do, line = HARMS[harm]
    do(packed)
    assert line in said(packed)
    assert said(packed).endswith(AGAIN)


@pytest.mark.parametrize("part", ["images", "sizes", "offsets", "episodes"])
def test_any_byte_of_a_header(part: str, packed: Path) -> None:
    path = packed / f"val.{part}.npy"
    whole = path.read_bytes()
    for place in range(128):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert f"val.{part}.npy: " in said(packed)


# --- the manifest -------------------------------------------------------------------------------------

ANYTHING = [None, True, -1, 0, 2**70, 1.5, float("nan"), "", "text", "12", [], {}, [1], ["a", "a"], {"a": 1}]


def leaves(tree: dict[str, Any]) -> list[tuple[str, ...]]:
    """Paths of some keys at every level."""
    return [
        *((key,) for key in tree),
        ("splits", "val"),
        *(("splits", "val", key) for key in tree["splits"]["val"]),
        ("sha256", "val.images.npy"),
    ]


def put(tree: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """A copy of `tree` with another value at `path`."""
    copy: dict[str, Any] = json.loads(json.dumps(tree))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def test_any_value_of_another_kind_is_refused_in_one_line(packed: Path) -> None:
    whole = json.loads((packed / MANIFEST).read_text())
    accepted = []
    for path in leaves(whole):
        for value in ANYTHING:
            (packed / MANIFEST).write_text(json.dumps(put(whole, path, value)))
            try:
                read_manifest(packed)
            except DataError as error:
                assert (
                    str(error).isprintable() and "manifest.json: " in str(error) and "; run `" in str(error)
                )
            else:
                accepted.append((path, value))
    free = {("source",), ("encoding",), ("skipped",), ("resized_to",), ("splits", "val", "episodes")}
    assert {path for path, _ in accepted} <= free | {("splits",), ("sha256",), ("splits", "val", "classes")}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": ' + b"9" * 5000 + b"}",
        b'{"version": 1}',
        b'{"version": 1, "splits": {}}',
    ],
    ids=lambda content: str(content[:12]),
)
def test_a_manifest_that_is_none(content: bytes, packed: Path) -> None:
    (packed / MANIFEST).write_bytes(content)
    assert "manifest.json: not a packed data set (" in said(packed)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "val.more", "manifest.json", "a\nb"])
def test_checksums_are_of_files_of_the_folder_alone(name: str, packed: Path) -> None:
    tree = json.loads((packed / MANIFEST).read_text())
    tree["sha256"][name] = "0" * 64
    (packed / MANIFEST).write_text(json.dumps(tree))
    assert "sha256: only the files of the splits have one" in said(packed)


def test_half_a_character_is_no_name(packed: Path) -> None:
    tree = json.loads((packed / MANIFEST).read_text())
    tree["splits"]["val"]["classes"][0] = "\ud800"
    (packed / MANIFEST).write_text(json.dumps(tree))
    assert "surrogates not allowed" in said(packed)


@pytest.mark.parametrize("name", ["val", "train"])
def test_what_the_folder_does_not_have(name: SplitName, packed: Path) -> None:
    tree = json.loads((packed / MANIFEST).read_text())
    if name == "train":
        with pytest.raises(DataError, match="no episodes are packed of train"):
            _ = PackedSplit(packed, name).episodes
    del tree["splits"][name]
    tree["sha256"] = {key: value for key, value in tree["sha256"].items() if not key.startswith(name)}
    (packed / MANIFEST).write_text(json.dumps(tree))
    with pytest.raises(DataError, match=f"it has no split {name}"):
        _ = PackedSplit(packed, name).images


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_manifest_says_only_data_errors_come(
    data: st.DataObject, packed: Path, tiny_packed: Path
) -> None:
    whole = json.loads((tiny_packed / MANIFEST).read_text())
    tree = put(whole, data.draw(st.sampled_from(leaves(whole))), data.draw(JSON))
    (packed / MANIFEST).write_text(json.dumps(tree))
    try:
        open_all(packed)
        list(damaged(packed))
    except DataError as error:
        assert str(error).isprintable()


# --- contents -----------------------------------------------------------------------------------------


def test_contents_are_compared_when_asked(packed: Path) -> None:
    verify(packed)
    assert list(damaged(packed)) == []
    for path in (packed / "train.images.npy", packed / "val.encoded.bin"):
        path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    (packed / "test.sizes.npy").unlink()
    names = {"train.images.npy", "val.encoded.bin", "test.sizes.npy"}
    assert {path.name for path in damaged(packed)} == names
    with pytest.raises(DataError, match=r"train\.images\.npy: damaged or missing; run `parashot verify`"):
        verify(packed)


def test_a_file_without_a_checksum_is_not_trusted(packed: Path) -> None:
    tree = json.loads((packed / MANIFEST).read_text())
    del tree["sha256"]["val.images.npy"]
    (packed / MANIFEST).write_text(json.dumps(tree))
    assert [path.name for path in damaged(packed)] == ["val.images.npy"]
