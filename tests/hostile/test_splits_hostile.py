"""CSVs of splits, from anyone: two columns of plain names, or one line that says where they are not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from answers import Answered, Refused

from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.splits import read_rows, read_split, write_split
from parashot.errors import DataError

HEAD = b"filename,label\n"

BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no column 'filename'"),
    "only a mark of UTF-8": (b"\xef\xbb\xbf", "no column 'filename'"),
    "other columns": (b"image,class\na,b\n", "no column 'filename', only image, class"),
    "columns in capitals": (b"Filename,Label\na,b\n", "no column 'filename', only Filename, Label"),
    "columns between semicolons": (b"filename;label\na;b\n", "no column 'filename', only filename;label"),
    "columns between tabs": (b"filename\tlabel\na\tb\n", r"only filename\tlabel"),
    "a column twice": (b"filename,label,label\na,b,c\n", "more than one column 'label'"),
    "a hostile column": ("x\u202e,\x1b[2J\n".encode(), r"only x\u202e, \x1b[2J"),
    "a million columns": (b"," * 1_000_000, "no column 'filename'"),
    "no label": (HEAD + b"a.jpg\n", "line 2 lacks a filename or a label"),
    "an empty label": (HEAD + b"a.jpg,b\n\nb.jpg,\n", "line 4 lacks"),
    "an empty filename": (HEAD + b",b\n", "line 2 lacks"),
    "UTF-16": ("filename,label\na,b\n".encode("utf-16"), "not UTF-8 text"),
    "UTF-32": ("filename,label\na,b\n".encode("utf-32"), "not UTF-8 text"),
    "Latin 1": (HEAD + "caf\u00e9.jpg,b\n".encode("latin-1"), "not UTF-8 text"),
    "half a letter": (HEAD + b"a\xe2\x82", "not UTF-8 text"),
    "a surrogate": (HEAD + b"\xed\xa0\x80,b\n", "not UTF-8 text"),
    "UTF-16 without mark": ("filename,label\n".encode("utf-16-le"), r"no column 'filename', only f\x00i"),
    "NUL": (HEAD + b"a\0.jpg,b\n", "line 2"),
    "an escape of terminals": (HEAD + b"\x1b[31m.jpg,b\n", "line 2 holds control characters"),
    "a bell": (HEAD + b"a.jpg,\x07\n", "line 2 holds control characters"),
    "a right-to-left override": (HEAD + "\u202egpj.exe,b\n".encode(), "line 2 holds control characters"),
    "a newline in quotes": (HEAD + b'"a\nb.jpg",b\n', "line 3 holds control characters"),
    "a line separator": (HEAD + "a\u2028.jpg,b\n".encode(), "line 2 holds control characters"),
    "a quote without end": (HEAD + b'"a.jpg,b\n' + b"c,d\n" * 99, "is not CSV"),
    "text behind a quote": (HEAD + b'"a"b.jpg,c\n', "line 2 is not CSV"),
    "a giant field": (HEAD + b"a" * 200_000 + b",b\n", "line 2 is not CSV"),
    "a giant field in quotes": (HEAD + b'"' + b"a,\n" * 100_000 + b'",b\n', "is not CSV"),
    "a web page": (b"<!doctype html>\n<p>404\n", "no column 'filename'"),
    "a zip": (b"PK\x03\x04\x14\x00\x00\x00", "no column 'filename'"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_csvs(refused: Refused, data: bytes, message: str) -> None:
    refused(DataError, lambda: list(read_rows(data, "train.csv")), "train.csv: ", message)


GOOD: dict[str, bytes] = {
    "as usual": HEAD + b"a.jpg,b\n",
    "with a mark of UTF-8": b"\xef\xbb\xbf" + HEAD + b"a.jpg,b\n",
    "of Windows": b"filename,label\r\na.jpg,b\r\n",
    "without a last newline": HEAD + b"a.jpg,b",
    "with blank lines": HEAD + b"\n\na.jpg,b\n\n",
    "with spaces around names": b" filename , label \na.jpg,b\n",
    "in another order": b"x,label,filename\n1,b,a.jpg\n",
    "with further columns": b"filename,label,url\na.jpg,b,javascript:alert(1),more,and more\n",
    "in quotes": b'"filename","label"\n"a.jpg","b"\n',
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_harmless_csvs(answered: Answered, data: bytes) -> None:
    assert list(read_rows(data, "train.csv")) == [("a.jpg", "b")]
    answered()


def test_a_copy_with_a_hostile_csv(tmp_path: Path, refused: Refused) -> None:
    copy = tmp_path / "copy"
    (copy / "images").mkdir(parents=True)
    (copy / "images" / "n0153282900000001.jpg").write_bytes(b"x")
    (copy / "train.csv").write_bytes(HEAD + b"../../etc/passwd,n01532829\n\x1b,n01532829\n")
    refused(DataError, lambda: list(miniimagenet(copy).images), f"{copy}: train.csv: line 3")


def test_a_path_in_a_csv_is_only_a_name(tmp_path: Path, refused: Refused) -> None:
    copy = tmp_path / "copy"
    (copy / "images").mkdir(parents=True)
    (copy / "images" / "n0153282900000001.jpg").write_bytes(b"x")
    (copy / "train.csv").write_bytes(HEAD + b"../../etc/passwd,n01532829\n")
    refused(DataError, lambda: list(miniimagenet(copy).images), "passwd of train.csv")


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "'=1", "''@x", "=cmd|' -C calc'!A0"]


@pytest.mark.parametrize("label", FORMULAS)
def test_a_class_that_looks_like_a_formula(
    tmp_path: Path, answered: Answered, jpeg: bytes, label: str
) -> None:
    """To a spreadsheet it is text; read again, it is what it was."""
    images = [RawImage(each, "=1.jpg", jpeg) for each in (label, "b", "c")]
    splits = {"train": [label], "val": ["b"], "test": ["c"]}
    write_raw(tmp_path / "raw", ImageStream(images, splits), "folder", "fail", lambda _: None)
    write_split(tmp_path / "raw", tmp_path / "split", 0, n_way=1, images_needed=1)
    with (tmp_path / "split" / "train.csv").open(encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    assert read_split(tmp_path / "split")["train"] == {label: [f"{label}/=1.jpg"]}
    answered()
