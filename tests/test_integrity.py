"""`parashot verify` in real DVC repositories: each flipped bit is found, and the commands it names mend it.

Bits are flipped as a disk does it: no time stamp changes, so DVC itself sees nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from parashot.cli import main
from parashot.integrity.cache import cache_folder

KINDS = ("copy", "hardlink", "symlink")
STAGES = {
    "one": {"cmd": "python one.py", "outs": ["one.json"]},
    "pack": {"cmd": "python pack.py", "deps": ["one.json"], "outs": ["data/packed"]},
}
ONE = "open('one.json', 'w').write('{}\\n'.join(map(str, range(200))))"
PACK = "import shutil; shutil.copytree('made', 'data/packed')"


@dataclass(frozen=True)
class Repository:
    root: Path
    kind: str

    def run(self, command: str) -> str:
        """What a command of the shell prints, with this interpreter's scripts first on the path."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}
        done = subprocess.run(
            command, shell=True, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def md5(self, path: str) -> str:
        outs = [out for stage in self.lock()["stages"].values() for out in stage["outs"]]
        return str(next(out["md5"] for out in outs if out["path"] == path))

    def lock(self) -> dict[str, dict[str, dict[str, list[dict[str, str]]]]]:
        tree: dict[str, dict[str, dict[str, list[dict[str, str]]]]]
        tree = yaml.safe_load((self.root / "dvc.lock").read_text())
        return tree

    def object(self, path: str) -> Path:
        """Where the cache has an output, or a file in one."""
        if path == "data/packed" or "data/packed" not in path:
            return self._place(self.md5(path))
        listed = json.loads(self.object("data/packed").read_text())
        name = path.removeprefix("data/packed/")
        return self._place(next(each["md5"] for each in listed if each["relpath"] == name))

    def _place(self, md5: str) -> Path:
        return self.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]


def make(root: Path, kind: str, packed: Path) -> Repository:
    """A small study that DVC has run: a file, and packed images."""
    repository = Repository(root, kind)
    root.mkdir()
    shutil.copytree(packed, root / "made")
    for name, text in {
        "one.py": ONE,
        "pack.py": PACK,
        "dvc.yaml": yaml.safe_dump({"stages": STAGES}),
    }.items():
        (root / name).write_text(text)
    set_up(root, kind)
    repository.run("dvc repro --quiet")
    return repository


def set_up(root: Path, kind: str) -> None:
    """As `dvc init` does it."""
    (root / ".dvc").mkdir()
    (root / ".dvc/config").write_text(f"[core]\n    no_scm = true\n[cache]\n    type = {kind}\n")


@pytest.fixture(scope="module")
def models(tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repository]:
    folder = tmp_path_factory.mktemp("integrity")
    return {kind: make(folder / kind, kind, tiny_packed) for kind in KINDS}


@pytest.fixture(params=KINDS)
def each(
    models: dict[str, Repository], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Repository:
    """A repository of each kind. What a test does to it, the commands that it is told undo."""
    return entered(models[request.param], monkeypatch)


@pytest.fixture
def copied(models: dict[str, Repository], monkeypatch: pytest.MonkeyPatch) -> Repository:
    """The one in which outputs and cache are different files."""
    return entered(models["copy"], monkeypatch)


def entered(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Work there. To ask DVC each time where its cache is would take most of these tests' time."""
    monkeypatch.chdir(repository.root)
    monkeypatch.setattr("parashot.integrity.cache.cache_folder", lambda root: root / ".dvc/cache")
    return repository


def flip(path: Path, place: float = 0.5) -> None:
    """Turn a bit over, in the middle or elsewhere; times and mode stay."""
    about = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(int(place * (about.st_size - 1)))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    path.chmod(about.st_mode)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


Printed = pytest.CaptureFixture[str]


def verify(capsys: Printed, *words: str) -> tuple[int, list[str]]:
    """The exit status, and the lines about files."""
    capsys.readouterr()
    status = main(["verify", *words])
    lines = capsys.readouterr().out.splitlines()
    return status, [line for line in lines if line.split(": ")[0] in {"damaged", "missing", "changed"}]


def mend(repository: Repository, line: str, capsys: Printed) -> None:
    """Do what a line says; then all must be whole."""
    repository.run(line.partition("; fix: ")[2])
    assert verify(capsys) == (0, [])
    assert (repository.root / "one.json").read_text().startswith("0{}\n1{}\n")
    made = {path.name: path.read_bytes() for path in (repository.root / "made").iterdir()}
    assert {path.name: path.read_bytes() for path in (repository.root / "data/packed").iterdir()} == made


def test_what_is_whole_is_said_to_be(each: Repository, capsys: Printed) -> None:
    assert main(["verify"]) == 0
    read = capsys.readouterr().out
    objects = (
        len({path.read_bytes() for path in (each.root / "made").iterdir()}) + 2
    )  # one.json, and the list
    assert read.endswith(f"16 files of 2 outputs, {objects} objects of DVC's cache; all whole\n")


def test_the_cache_is_where_dvc_says(models: dict[str, Repository], tmp_path: Path) -> None:
    assert cache_folder(models["copy"].root) == models["copy"].root / ".dvc/cache"
    set_up(tmp_path, "copy")
    (tmp_path / ".dvc/config.local").write_text("[cache]\n    dir = /elsewhere\n")
    assert cache_folder(tmp_path) == Path("/elsewhere")


# --- outputs ------------------------------------------------------------------------------------------


def test_what_dvc_does_not_see(copied: Repository, capsys: Printed) -> None:
    flip(copied.root / "one.json")
    assert "up to date" in copied.run("dvc status")
    status, lines = verify(capsys)
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith("damaged: one.json: 1 of ")
    mend(copied, lines[0], capsys)


def test_a_flipped_bit_is_found_and_mended(each: Repository, capsys: Printed) -> None:
    path = "data/packed/val.episodes.npy"
    flip(each.root / path)
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    told = "1 of " if each.kind == "copy" else "and with it DVC's cache, where it is the same file; "
    assert lines[0].startswith(f"damaged: {path}: {told}")
    mend(each, lines[0], capsys)


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_bit_in_any_file_of_the_packed_images(copied: Repository, place: float, capsys: Printed) -> None:
    paths = sorted((copied.root / "data/packed").iterdir())
    for path in paths:
        flip(path, place)
    status, lines = verify(capsys)
    assert status == 1
    assert [line.split(": ")[1] for line in lines] == [f"data/packed/{path.name}" for path in paths]
    assert len(paths) == 15
    for path in paths:
        flip(path, place)
    assert verify(capsys) == (0, [])


def test_a_file_that_is_cut_off(copied: Repository, capsys: Printed) -> None:
    os.truncate(copied.root / "one.json", 300)
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith("damaged: one.json: cut off after 300 of ")
    mend(copied, lines[0], capsys)


@pytest.mark.parametrize("path", ["one.json", "data/packed/val.sizes.npy"])
def test_a_file_that_is_missing(copied: Repository, path: str, capsys: Printed) -> None:
    (copied.root / path).unlink()
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith(f"missing: {path}: in DVC's cache it is whole; ")
    mend(copied, lines[0], capsys)


def test_a_file_of_which_no_copy_is_whole(copied: Repository, capsys: Printed) -> None:
    flip(copied.root / "one.json")
    flip(copied.object("one.json"))
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith("damaged: one.json: or changed: DVC's cache has no whole copy to tell; ")
    mend(copied, lines[0], capsys)


def test_what_was_changed_is_no_damage(copied: Repository, capsys: Printed) -> None:
    (copied.root / "one.json").write_text("another")
    (copied.root / "data/packed/more").write_text("of one's own")
    status, lines = verify(capsys)
    assert status == 0 and len(lines) == 2
    assert lines[0].startswith("changed: one.json: not what dvc.lock says; ")
    assert lines[1].startswith("changed: data/packed: more in it, which dvc.lock does not know; ")
    copied.run(lines[1].partition("; fix: ")[2])
    mend(copied, lines[0], capsys)


def test_remnants_of_killed_writers_are_no_part_of_an_output(copied: Repository, capsys: Printed) -> None:
    remnant = copied.root / "data/packed/.manifest.json.7.tmp"
    remnant.write_text("half of the m")
    assert verify(capsys) == (0, [])
    remnant.unlink()


def test_what_a_stage_writes_now_is_not_judged(copied: Repository, capsys: Printed) -> None:
    locks, one = copied.root / ".dvc/tmp/rwlock", copied.root / "one.json"
    before, content = locks.read_text(), one.read_text()
    locks.write_text(json.dumps({"read": {}, "write": {str(one): {"pid": os.getpid(), "cmd": "dvc repro"}}}))
    one.write_text("half of the n")
    assert main(["verify"]) == 0
    assert "not judged, a stage writes them now: one.json" in capsys.readouterr().out
    locks.write_text(before)
    one.write_text(content)
    assert verify(capsys) == (0, [])


# --- the cache ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["one.json", "data/packed/val.sizes.npy", "data/packed"])
def test_a_flipped_bit_in_the_cache(copied: Repository, path: str, capsys: Printed) -> None:
    flip(copied.object(path))
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith("damaged: .dvc/cache/files/md5/")
    assert f": {path} itself is whole; fix: rm -f .dvc/" in lines[0]
    assert verify(capsys, "--no-cache") == (0, [])
    mend(copied, lines[0], capsys)


def test_an_object_of_another_version(copied: Repository, capsys: Printed) -> None:
    place = copied.root / ".dvc/cache/files/md5/00/000000000000000000000000000000"
    place.parent.mkdir(exist_ok=True)
    place.write_text("of an older study")
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert "of an output that is not here in this version; " in lines[0]
    mend(copied, lines[0], capsys)
    assert not place.exists()


def test_without_a_list_in_the_cache_a_folder_is_compared_as_a_whole(
    copied: Repository, capsys: Printed
) -> None:
    copied.object("data/packed").rename(copied.root / "list")
    assert verify(capsys) == (0, [])
    flip(copied.root / "data/packed/train.sizes.npy")
    status, lines = verify(capsys)
    assert status == 1 and lines[0].startswith("damaged: data/packed: not as dvc.lock says; ")
    mend(copied, lines[0], capsys)


# --- where little is built ----------------------------------------------------------------------------


@pytest.fixture
def bare(copied: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a clone has: the graph and dvc.lock."""
    for name in ("dvc.yaml", "dvc.lock"):
        shutil.copy(copied.root / name, tmp_path / name)
    set_up(tmp_path, "copy")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_not_built_is_not_missing(bare: Path, capsys: Printed) -> None:
    assert main(["verify"]) == 0
    assert "not built here yet (dvc repro): one.json, data/packed\n" in capsys.readouterr().out
    (bare / "dvc.lock").unlink()
    assert main(["verify"]) == 0
    assert "nothing has been built here yet (dvc repro)\n" in capsys.readouterr().out


def test_packed_images_have_checksums_of_their_own(bare: Path, tiny_packed: Path, capsys: Printed) -> None:
    (bare / "dvc.lock").unlink()
    shutil.copytree(tiny_packed, bare / "data/packed")
    assert verify(capsys) == (0, [])
    flip(bare / "data/packed/test.encoded.bin")
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith(
        "damaged: data/packed/test.encoded.bin: not as the folder's own manifest says; "
    )
    flip(bare / "data/packed/manifest.json", 0)
    status, lines = verify(capsys)
    assert status == 1 and len(lines) == 1 and "data/packed/manifest.json" in lines[0]


@pytest.mark.parametrize(
    "text",
    [
        "stages: [",
        "- a",
        "{}",
        "stages: {one: {outs: [{path: a}]}}",
        "stages: {one: {outs: [{path: a, md5: 12}]}}",
        "stages: {one: {outs: [{path: a, md5: ../../etc}]}}",
        "stages: {one: {outs: 7}}",
        "stages: {one: 7}",
    ],
)
def test_a_lock_that_is_none_is_one_line(bare: Path, text: str, capsys: Printed) -> None:
    (bare / "dvc.lock").write_text(text)
    assert main(["verify"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "dvc.lock" in said and said.count("\n") == 1


def test_elsewhere_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["verify"]) == 1
    assert "no dvc.yaml here" in capsys.readouterr().err


def test_as_json(copied: Repository, capsys: Printed) -> None:
    flip(copied.root / "one.json")
    assert main(["verify", "--json"]) == 1
    printed = capsys.readouterr()
    tree = json.loads(printed.out)
    assert [(each["kind"], each["path"]) for each in tree["faults"]] == [("damaged", "one.json")]
    assert (tree["outputs"], tree["files"]) == (2, 16)
    assert printed.err.splitlines()[-1] == "error: 1 damaged or missing; the commands beside each mend it"
    copied.run(tree["faults"][0]["fix"])
    assert verify(capsys) == (0, [])
