"""All that can be compared with a checksum: outputs, the packed images' own sums, and DVC's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parashot.data.manifest import MANIFEST, damaged
from parashot.errors import DataError
from parashot.integrity.cache import Cache
from parashot.integrity.digests import Digests
from parashot.integrity.fault import Fault, Names, cache_again, make_again
from parashot.integrity.lock import Output
from parashot.integrity.outputs import Outputs


@dataclass
class Report:
    """What was found; counts are of what was looked at."""

    faults: list[Fault] = field(default_factory=list)
    outputs: int = 0
    files: int = 0
    objects: int = 0
    bytes: int = 0
    not_built: list[str] = field(default_factory=list)
    """Outputs that are neither here nor in DVC's cache."""
    under_way: list[str] = field(default_factory=list)
    """Outputs that a stage writes now."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(each.kind == "changed" for each in self.faults)


@dataclass(frozen=True)
class Scope:
    """What to compare."""

    root: Path
    cache: Cache
    outputs: Sequence[Output]
    under_way: set[Path]
    whole_cache: bool
    """Whether objects are read that no output needs."""
    packed: tuple[str, str]
    """Place of the packed images, and the stage that makes them."""


def check(scope: Scope, progress: Callable[[int], object]) -> Report:
    """Read everything once and compare it; `progress` is told how many files have been read."""
    report, digests = Report(), Digests()
    outputs = Outputs(scope.root, scope.cache, digests)

    def looked_at(fault: Fault | None) -> None:
        report.faults += [fault] if fault else []
        report.bytes = digests.bytes
        progress(report.files + report.objects)

    for output in scope.outputs:
        if scope.root / output.path in scope.under_way:
            report.under_way.append(output.path)
        elif not outputs.is_there(output):
            report.not_built.append(output.path)
        else:
            report.outputs += 1
            for fault in outputs.check(output):
                report.files += 1
                looked_at(fault)
    report.faults += _packed(scope, {each.path for each in report.faults})
    for name in scope.cache.names() if scope.whole_cache else []:
        report.objects += 1
        looked_at(_object(name, scope, outputs, digests))
    return report


def _packed(scope: Scope, told: set[str]) -> Iterator[Fault]:
    """By the packed images' own checksums, which hold also where dvc.lock does not know them."""
    place, stage = scope.packed
    folder, names = scope.root / place, Names(scope.root)
    if folder in scope.under_way or place in told or not (folder / MANIFEST).exists():
        return
    try:
        found = list(damaged(folder))
    except DataError:
        found = [folder / MANIFEST]
    for path in found:
        if names.said(path) not in told:
            fix = make_again(stage, without=[names.typed(folder)])
            yield Fault("damaged", names.said(path), "not as the folder's own manifest says", fix)


def _object(name: str, scope: Scope, outputs: Outputs, digests: Digests) -> Fault | None:
    """An object of the cache that is not what its name says, if that is not yet told."""
    if name in outputs.told or scope.cache.is_whole(name, digests):
        return None
    names, place = Names(scope.root), scope.cache.place(name)
    said, typed = names.said(place), names.typed(place)
    if name not in outputs.whole:
        what = "of an output that is not here in this version; where it is needed it is made again"
        return Fault("damaged", said, what, f"rm -f {typed}")
    stage, path = outputs.whole[name]
    return Fault("damaged", said, f"{names.said(path)} itself is whole", cache_again(stage, without=typed))
