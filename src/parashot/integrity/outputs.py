"""The outputs that dvc.lock names, each file compared with its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parashot.errors import one_line
from parashot.integrity.cache import Cache, folder_md5
from parashot.integrity.compare import damage
from parashot.integrity.digests import Digests
from parashot.integrity.fault import Fault, Kind, Names, checkout, make_again, take_back_or_keep
from parashot.integrity.lock import Output


class Outputs:
    """Compares outputs, and keeps in mind what that tells of the cache."""

    def __init__(self, root: Path, cache: Cache, digests: Digests) -> None:
        self._root, self._cache, self._digests = root, cache, digests
        self._names = Names(root)
        self.whole: dict[str, tuple[str, Path]] = {}
        """Stage and place of what is as it should be, by its checksum."""
        self.told: set[str] = set()
        """Objects of the cache whose damage is part of what was said of an output."""

    def is_there(self, output: Output) -> bool:
        """Whether there is something to compare, or DVC's cache once had it."""
        path = self._root / output.path
        return path.exists() or path.is_symlink() or self._cache.place(output.md5).exists()

    def check(self, output: Output) -> Iterator[Fault | None]:
        """Yield, after each file, what is wrong with it or None."""
        path = self._root / output.path
        if path.exists() and path.is_dir() != output.is_folder:
            yield self._changed(path, output.stage, "it is a folder" if path.is_dir() else "it is no folder")
        elif output.is_folder:
            yield from self._folder(path, output)
        else:
            yield self._file(path, output.md5, output.stage)

    def _folder(self, folder: Path, output: Output) -> Iterator[Fault | None]:
        there = {each.relative_to(folder).as_posix(): each for each in _files(folder)}
        listed = self._cache.listed(output.md5, self._digests)
        if listed is None:
            yield self._without_list(folder, there, output)
            return
        for name, md5 in listed.items():
            yield self._file(folder / name, md5, output.stage)
        if unknown := sorted(there.keys() - listed.keys()):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield self._changed(
                folder, output.stage, f"{unknown[0]}{more} in it, which dvc.lock does not know"
            )

    def _without_list(self, folder: Path, there: dict[str, Path], output: Output) -> Fault | None:
        """A folder whose list of files is not in the cache: all that can be said is whether all is well."""
        try:
            found = {name: self._digests.md5(path) for name, path in there.items()}
        except OSError as error:
            return self._lost("damaged", folder, output.md5, output.stage, one_line(error))
        if folder_md5(found) != output.md5:
            what = "not as dvc.lock says; DVC's cache has no list of its files to tell which"
            return self._lost("damaged", folder, output.md5, output.stage, what)
        self.whole |= {md5: (output.stage, there[name]) for name, md5 in found.items()}
        self.whole[output.md5] = output.stage, folder
        return None

    def _file(self, path: Path, md5: str, stage: str) -> Fault | None:
        try:
            found = self._digests.md5(path)
        except FileNotFoundError:
            return self._missing(path, md5, stage)
        except OSError as error:
            return self._damaged(path, md5, stage, one_line(error))
        if found != md5:
            return self._differing(path, found, md5, stage)
        self.whole[md5] = stage, path
        return None

    def _differing(self, path: Path, found: str, md5: str, stage: str) -> Fault:
        place = self._cache.place(md5)
        if place.exists() and place.samefile(path):
            return self._lost(
                "damaged", path, md5, stage, "and with it DVC's cache, where it is the same file"
            )
        if self._cache.place(found).exists():
            return self._changed(path, stage, "another version, which is in DVC's cache too")
        if not self._cache.is_whole(md5, self._digests):
            return self._lost(
                "damaged", path, md5, stage, "or changed: DVC's cache has no whole copy to tell"
            )
        if (what := damage(path, place)) is None:
            return self._changed(path, stage, "not what dvc.lock says")
        return self._damaged(path, md5, stage, what)

    def _missing(self, path: Path, md5: str, stage: str) -> Fault:
        if self._cache.is_whole(md5, self._digests):
            return Fault(
                "missing", self._names.said(path), "in DVC's cache it is whole", self._checkout(path)
            )
        return self._lost("missing", path, md5, stage, "and DVC's cache has no whole copy")

    def _damaged(self, path: Path, md5: str, stage: str, what: str) -> Fault:
        if self._cache.is_whole(md5, self._digests):
            return Fault("damaged", self._names.said(path), what, self._checkout(path))
        return self._lost("damaged", path, md5, stage, what)

    def _lost(self, kind: Kind, path: Path, md5: str, stage: str, what: str) -> Fault:
        self.told.add(md5)
        rest = [self._names.typed(each) for each in (path, self._cache.place(md5)) if each.exists()]
        return Fault(kind, self._names.said(path), what, make_again(stage, without=rest))

    def _changed(self, path: Path, stage: str, what: str) -> Fault:
        return Fault(
            "changed", self._names.said(path), what, take_back_or_keep(stage, self._names.typed(path))
        )

    def _checkout(self, path: Path) -> str:
        return checkout(self._names.typed(path))


def _files(folder: Path) -> Iterator[Path]:
    """Every file of an output; what a killed writer left beside them is none of its."""
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() and not (path.name.startswith(".") and path.suffix in {".tmp", ".old"}):
            yield path
