"""Three sources of images behind one interface: `download` writes the raw store, whatever they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from parashot.data.archives import folder_files
from parashot.data.raw import ImageStream, Progress, RawManifest, write_raw
from parashot.data.sources.folder import folder
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.sources.mirrors import MIRRORS, download_from
from parashot.data.sources.synthetic import synthetic
from parashot.errors import DataError
from parashot.params import DataParams


def download(
    params: DataParams, seed: int, root: Path, cache: Path, out: Path, progress: Progress
) -> RawManifest:
    """Write the raw store `out` from the source that `params` name.

    A relative `params.archive` is taken from `root`; `cache` keeps downloads that broke off.
    Raises `DataError` where the images cannot be had, or are not what they should be.
    """
    write = partial(_write, params, out, progress)
    if params.source == "synthetic":
        return write(synthetic(params.synthetic, seed))
    if params.archive is not None:
        path = _archive(params.archive, root)
        return write(folder(path) if params.source == "folder" else miniimagenet(path))
    if params.source == "folder":
        raise DataError(
            "data.archive: null, but data.source is folder; give the folder that holds a folder per class"
        )
    return download_from(MIRRORS, cache, lambda place: write(miniimagenet(place)), progress)


def fingerprint(params: DataParams, root: Path) -> dict[str, object]:
    """Say what the archive holds, whatever its place and times: files, bytes, a hash of names and contents.

    Raises `DataError` where it does not exist.
    """
    if params.archive is None:
        return {"source": params.source, "archive": None}
    path = _archive(params.archive, root)
    files = list(folder_files(path)) if path.is_dir() else [path]
    names = [file.relative_to(path).as_posix() for file in files]
    contents = {
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "sha256": _hash_all(zip(names, files, strict=True)),
    }
    return {"source": params.source, "archive": contents}


def _write(params: DataParams, out: Path, progress: Progress, stream: ImageStream) -> RawManifest:
    return write_raw(out, stream, params.source, params.on_bad_image, progress)


def _archive(archive: str, root: Path) -> Path:
    path = root / Path(archive).expanduser()
    if not path.exists():
        raise DataError(
            f"data.archive: {path} does not exist; give a path that does, absolute or relative to {root}"
        )
    if not path.is_dir() and not path.is_file():  # a device may have no end
        raise DataError(f"data.archive: {path} is neither a file nor a folder; give one of the two")
    return path


def _hash_all(files: Iterable[tuple[str, Path]]) -> str:
    """Hash names, sizes and contents, in the order of the names."""
    whole = hashlib.sha256()
    for name, path in sorted(files):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{name!r} {path.stat().st_size} {digest}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
