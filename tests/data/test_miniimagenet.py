"""miniImageNet in every layout people have gives the same classes; what is wrong is said in one line.

The stand-in has the 100 real class names and two small images of each.
"""

from __future__ import annotations

import io
import os
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copies import Files, as_folder, as_tar, as_zip, jpeg

from parashot.data.archives import unpacked
from parashot.data.images import decode
from parashot.data.raw import RawManifest, open_images, read_manifest, write_raw
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.data.sources.pickled import category_splits, load_arrays, pickled_images
from parashot.errors import DataError

Row = tuple[str, str, str, int]

PER_CLASS = 2


HOMES = [(split, label) for split, labels in class_splits().items() for label in labels] * PER_CLASS
ROWS: list[Row] = [
    (split, label, f"{label}{number:08d}.jpg", number) for number, (split, label) in enumerate(HOMES)
]
"""(split, class, file name as in Ravi and Larochelle's CSVs, number) of each image of the stand-in."""


@pytest.fixture(scope="module")
def flat() -> Files:
    """`images/` and the three CSVs."""
    files = {f"images/{name}": jpeg(number) for _, _, name, number in ROWS}
    for split in class_splits():
        lines = [f"{name},{label}\n" for home, label, name, _ in ROWS if home == split]
        files[f"{split}.csv"] = "".join(["filename,label\n", *lines]).encode()
    return files


def _foldered(path: Path, files: Files, form: str) -> Path:
    """Name each image by the parts of its row, and by train or val, where its class has both."""
    tree = {form.format(*row, ("train", "val")[row[3] // 100]): files[f"images/{row[2]}"] for row in ROWS}
    return as_folder(path, tree | {"README.md": b"# images", "data.csv": b"a,b"})


def _no_csv(files: Files) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(".csv")}


LAYOUTS: dict[str, Callable[[Path, Files], Path]] = {
    "images and CSVs": as_folder,
    "without CSVs": lambda path, files: as_folder(path, _no_csv(files)),
    "zip with a folder around": lambda path, files: as_zip(path, {f"mini/{k}": v for k, v in files.items()}),
    "class folders, other names": partial(_foldered, form="{0}/{1}/{1}_{3}.JPEG"),
    "class folders by image, equal names": partial(_foldered, form="{4}/{1}/0.jpg"),
}


def _store(path: Path, out: Path) -> RawManifest:
    with unpacked(path, out.with_name("scratch"), nested=True) as folder:
        write_raw(out, miniimagenet(folder, PER_CLASS))
    return read_manifest(out)


def _stored(out: Path, manifest: RawManifest) -> list[tuple[str, bytes]]:
    """Class and encoded bytes of every image of a raw store."""
    with open_images(out) as read:
        return sorted((k, read(f"{k}/{name}")) for k, names in manifest.images.items() for name in names)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_classes_and_bytes(tmp_path: Path, flat: Files, layout: str) -> None:
    manifest = _store(LAYOUTS[layout](tmp_path / "copy", flat), tmp_path / "raw")
    assert manifest.splits == class_splits()
    expected = sorted((label, flat[f"images/{name}"]) for _, label, name, _ in ROWS)
    assert _stored(tmp_path / "raw", manifest) == expected


def test_the_split_is_the_published_one() -> None:
    splits = class_splits()
    assert {split: len(labels) for split, labels in splits.items()} == {"train": 64, "val": 16, "test": 20}
    assert len(set().union(*splits.values())) == 100
    assert [labels[0] for labels in splits.values()] == [FIRST, "n01855672", "n01930112"]


def _arrays(split: str) -> tuple[np.ndarray, list[str]]:
    rows = [row for row in ROWS if row[0] == split]
    return np.stack([np.full((8, 8, 3), number, np.uint8) for *_, number in rows]), [row[1] for row in rows]


def _cache(split: str) -> bytes:
    pixels, labels = _arrays("val" if split == "validation" else split)
    places = {label: [i for i, other in enumerate(labels) if other == label] for label in labels}
    return pickle.dumps({"image_data": pixels, "class_dict": places}, 2)


def _category(split: str, first: int = 0) -> bytes:
    pixels, labels = _arrays(split)
    numbers = [first + sorted(set(labels)).index(label) for label in labels]
    return pickle.dumps({"data": pixels, "labels": numbers, "catname2label": {}}, 2)


def test_learn2learn_pickles(tmp_path: Path) -> None:
    files = {f"mini-imagenet-cache-{split}.pkl": _cache(split) for split in ("train", "validation", "test")}
    manifest = _store(as_tar(tmp_path / "copy", files, "w:gz"), tmp_path / "raw")
    assert manifest.splits == class_splits()
    found = {(label, int(decode(data).mean())) for label, data in _stored(tmp_path / "raw", manifest)}
    assert found == {(label, number) for _, label, _, number in ROWS}


def test_meta_baseline_pickles_get_names_by_split_and_label(tmp_path: Path) -> None:
    start = "miniImageNet_category_split"
    files = {
        f"{start}_train_phase_train.pickle": _category("train"),
        f"{start}_train_phase_val.pickle": b"never opened",
        f"{start}_val.pickle": _category("val", 64),
        f"{start}_test.pickle": _category("test", 80),
    }
    manifest = _store(as_folder(tmp_path / "copy", files), tmp_path / "raw")
    assert manifest.splits == category_splits()
    assert manifest.splits["val"][:2] == ("val00", "val01")
    assert {len(names) for names in manifest.images.values()} == {PER_CLASS}


FIRST = "n01532829"
IMAGE = f"images/{FIRST}00000000.jpg"

FAULTS: dict[str, tuple[Callable[[Files], Files], str]] = {
    "an image missing": (
        lambda files: {name: data for name, data in files.items() if name != IMAGE},
        f"class {FIRST} of split train has 1 images, not 2",
    ),
    "a foreign class": (
        lambda files: {name.replace(FIRST, "n99999999"): data for name, data in _no_csv(files).items()},
        "n99999999/n9999999900000000.jpg: this class is none of miniImageNet's",
    ),
    "nothing of miniImageNet": (
        lambda _: {"cat/1.jpg": b"", "notes.txt": b""},
        "nothing in it looks like miniImageNet",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_in_one_line(tmp_path: Path, flat: Files, fault: str) -> None:
    spoil, message = FAULTS[fault]
    as_folder(tmp_path / "copy", spoil(flat))
    with pytest.raises(DataError, match=rf"^{tmp_path}/copy: .*{message}"):
        _store(tmp_path / "copy", tmp_path / "raw")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


# --- pickles: arrays come through from every Python and numpy; a program does not ---------------------------

TREE: dict[str, Any] = {
    "image_data": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
    "class_dict": OrderedDict(n01=[0, np.int64(1)]),
    "labels": np.array([1.5, 2.5]),
}


def _load(data: bytes) -> Any:
    return load_arrays(io.BytesIO(data))


def test_every_protocol_and_the_names_of_numpy_1() -> None:
    pickles = [pickle.dumps(TREE, protocol) for protocol in range(6)]
    assert b"numpy._core" in pickles[2]
    for data in (*pickles, pickles[2].replace(b"numpy._core", b"numpy.core")):
        np.testing.assert_equal(_load(data), TREE)


def test_strings_of_python_2() -> None:
    """What Python 2 wrote: byte strings, here as SHORT_BINSTRING, for keys and for the pixels."""
    pixels = bytes([200, 255])
    data = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x02" + pixels + b"tbs."
    )
    assert np.array_equal(_load(data)["data"], np.frombuffer(pixels, np.uint8))


class _Program:
    def __reduce__(self) -> tuple[Any, Any]:
        return os.system, ("touch ran",)


PROGRAMS: dict[str, bytes] = {
    "by REDUCE": pickle.dumps(_Program(), 4),
    "by INST": b"(S'touch ran'\nios\nsystem\n.",
    "an attribute of what is admitted": b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",
    "a class of the standard library": pickle.dumps(Counter("ab"), 2),
}


@pytest.mark.parametrize("data", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^asks for .*, which is no array"):
        _load(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"<html>", pickle.dumps(TREE)[:-40]])
def test_damaged_says_so_in_one_line(data: bytes) -> None:
    with pytest.raises(DataError, match="not a whole pickle"):
        _load(data)


PIXELS = np.zeros((2, 8, 8, 3), np.uint8)
CACHE, CATEGORY = "mini-imagenet-cache-train.pkl", "miniImageNet_category_split_val.pickle"


@pytest.mark.parametrize(
    ("name", "tree", "message"),
    [
        (CACHE, [1], "odd contents"),
        (CACHE, {"data": 1}, "odd contents .'image_data'"),
        (CACHE, {"image_data": PIXELS[0], "class_dict": {}}, r"shape \(8, 8, 3\)"),
        (CACHE, {"image_data": PIXELS / 2, "class_dict": {}}, "images of float64"),
        (CACHE, {"image_data": PIXELS, "class_dict": []}, "odd contents"),
        (CACHE, {"image_data": PIXELS, "class_dict": {"n01532829": [2]}}, "odd contents .index 2"),
        (CACHE, {"image_data": PIXELS, "class_dict": {"n01532829": None}}, "odd contents"),
        (CACHE, {"image_data": [[1], [1, 2]], "class_dict": {}}, "odd contents"),
        (CACHE, {"image_data": PIXELS[:, :0], "class_dict": {"n01532829": [0]}}, "odd contents"),
        (CATEGORY, {"data": PIXELS, "labels": [1, None]}, "odd contents"),
    ],
)
def test_pickles_of_something_else(tmp_path: Path, name: str, tree: object, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(tree))
    with pytest.raises(DataError, match=f"^{name}: .*{message}.*; get it again$"):
        list(pickled_images(path))
