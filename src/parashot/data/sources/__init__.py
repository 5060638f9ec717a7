"""Sources of images behind one interface: `download` writes the raw store, whatever they come from."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from parashot.data.archives import files_in, unpacked
from parashot.data.manifest import sha256
from parashot.data.raw import write_raw
from parashot.data.sources.folder import folder
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.sources.mirrors import MIRRORS, download_from
from parashot.data.sources.synthetic import synthetic
from parashot.errors import DataError
from parashot.files import from_folder
from parashot.params import DataParams


def download(params: DataParams, seed: int, root: Path, cache: Path, out: Path) -> None:
    """Write the raw store `out` from the source that `params` name.

    A relative `params.archive` is taken from `root`; `cache` keeps downloads that broke off, and what is
    unpacked meanwhile. Raises `DataError` where the images cannot be had, or are not what they should be.
    """

    def write_copy(path: Path) -> None:
        known = params.source == "miniimagenet"
        with unpacked(path, cache / "unpacked", nested=known) as place:
            write_raw(out, miniimagenet(place) if known else folder(place), params.on_bad_image)

    if params.source == "synthetic":
        write_raw(out, synthetic(params.synthetic, seed))
    elif params.archive is None:
        download_from(MIRRORS, cache, write_copy)
    else:
        path = _archive(params.archive, root)
        try:
            write_copy(path)
        except DataError as error:
            raise DataError(f"data.archive: {error}") from error


def fingerprint(params: DataParams, seed: int, root: Path) -> dict[str, object]:
    """Identify what `download` reads: how images are drawn, or the contents of `params.archive`.

    Of these it is the number of files, bytes, and a hash of names and contents; place and times do not enter.
    Raises `DataError` where the archive does not exist.
    """
    if params.source == "synthetic":
        return {"source": params.source, "seed": seed, "synthetic": asdict(params.synthetic)}
    if params.archive is None:
        return {"source": params.source, "archive": None}
    path = _archive(params.archive, root)
    files = sorted(files_in(path)) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        name = file.relative_to(path).as_posix()
        whole.update(f"{name!r} {sha256(file)}\n".encode("utf-8", "surrogateescape"))
    size = sum(file.stat().st_size for file in files)
    contents = {"files": len(files), "bytes": size, "sha256": whole.hexdigest()}
    return {"source": params.source, "archive": contents}


def _archive(archive: str, root: Path) -> Path:
    path = from_folder(root, archive)
    if not path.is_dir() and not path.is_file():
        advice = f"give a path, absolute or relative to {root}"
        raise DataError(f"data.archive: {path} is neither a file nor a folder; {advice}")
    return path
