"""A power cut keeps what was flushed: whoever gives files their names has flushed them first, and flushes the names."""

import os
import stat
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny

from cutaway import folders
from cutaway.checkpoints import save
from cutaway.data.cache import META, cached
from cutaway.decoding import line_files
from cutaway.files import replacing, write_json
from cutaway.folders import Kind, replacing_folder
from cutaway.model.kernels import cpu
from cutaway.tokens import train_tokenizer
from cutaway.training.checkpoint import write_checkpoint

KIND = Kind("thing", "seal", ("seal", "part-*", "old"))


class Disk:
    """What a disk has for certain, while flushes and new names go by.

    `faults` are the names that were given to what a power cut could still take, `open` those that it could take away.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.certain = {path.lstat().st_ino: held_by(path) for path in (folder, *folder.rglob("*"))}
        self.faults: list[str] = []
        self.open: list[Path] = []
        self.calls: list[str] = []
        fsync, exchange = os.fsync, folders.exchange

        def flushed(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self.certain[path.stat().st_ino] = held_by(path)
            self.open = [name for name in self.open if name.parent != path]
            self.calls.append(f"flush {path.name}")

        def renaming(call: Callable[..., None]) -> Callable[..., None]:
            def renamed(old: os.PathLike[str], new: os.PathLike[str]) -> None:
                old, new = Path(old), Path(new)
                inside = [] if old.is_symlink() or not old.is_dir() else list(old.iterdir())
                self.faults += [f"{new.name}: {path.name}" for path in (old, *inside) if not self.has(path)]
                call(old, new)
                self.open.append(new)
                self.calls.append(f"name {new.name}")

            return renamed

        unlink = os.unlink

        def gone(path: os.PathLike[str], **more: Any) -> None:
            unlink(path, **more)
            self.calls.append(f"unlink {Path(path).name}")

        monkeypatch.setattr(os, "fsync", flushed)
        monkeypatch.setattr(os, "unlink", gone)
        for call in ("rename", "replace"):
            monkeypatch.setattr(os, call, renaming(getattr(os, call)))
        monkeypatch.setattr(folders, "exchange", renaming(exchange))

    def has(self, path: Path) -> bool:
        return self.certain.get(path.lstat().st_ino) == held_by(path)

    def lost(self) -> list[str]:
        """What a power cut could cost now; hidden names are nobody's."""
        return self.faults + [str(name) for name in self.open if name.exists() and not name.name.startswith(".")]


def held_by(path: Path) -> object:
    """What a flush makes certain: the numbers of a file, the names in a folder."""
    if path.is_symlink():
        return os.readlink(path)
    if stat.S_ISDIR(path.stat().st_mode):
        return {inside.name: inside.lstat().st_ino for inside in path.iterdir()}
    return path.read_bytes()


def write_thing(place: Path) -> None:
    with replacing_folder(place, KIND) as fresh:
        for name in ("seal", "part-1", "part-2"):
            (fresh / name).write_text(f"new {name}")


def write_text(place: Path) -> None:
    with replacing(place / "seal") as temporary:
        temporary.write_text("new")


def write_cache(place: Path) -> None:
    def build(folder: Path) -> dict[str, int]:
        for name in ("seal", "old"):
            (folder / name).write_bytes(b"1234")
        return {}

    entry = cached([place / "notes"], {}, build, place)
    assert (entry / META).exists()


def damage_cache(place: Path) -> None:
    write_cache(place)
    next(place.glob("*/old")).write_bytes(b"4321")


def write_steps(place: Path) -> None:
    write_checkpoint(place, 3, {"weights": {"one": torch.ones(8)}}, {"tokens": 1})


def write_model(place: Path) -> None:
    save(tiny("gpt2", dtype=torch.float32), place, train_tokenizer(["a text"], kind="word"), shard_size=20_000)


WRITERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {  # what writes, after what
    "a file": (write_text, lambda place: (place / "seal").write_text("old")),
    "a new file": (write_text, lambda place: None),
    "JSON": (lambda place: write_json(place / "seal", {"a": 1}), lambda place: None),
    "a folder": (lambda place: write_thing(place / "thing"), lambda place: None),
    "an old folder": (write_thing, lambda place: [(place / name).write_text("old") for name in ("seal", "old")]),
    "a folder that holds another": (write_thing, lambda place: [(place / "seal").touch(), (place / "run").mkdir()]),
    "the data's cache": (write_cache, lambda place: None),
    "a damaged cache": (write_cache, damage_cache),
    "a checkpoint": (write_steps, lambda place: None),
    "a checkpoint of the same step": (write_steps, write_steps),
    "a model": (lambda place: write_model(place / "model"), lambda place: None),
    "a model again": (lambda place: write_model(place / "model"), lambda place: write_model(place / "model")),
}


@pytest.mark.filterwarnings("ignore:the cache is damaged")
@pytest.mark.parametrize("may_exchange", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_written_is_flushed_before_it_has_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, may_exchange: bool
) -> None:
    write, before = WRITERS[writer]
    (tmp_path / "notes").write_text("mine")
    before(tmp_path)
    disk = Disk(tmp_path, monkeypatch)
    if not may_exchange:
        monkeypatch.setattr(folders, "exchange", refused)
    write(tmp_path)
    assert any(call.startswith("name ") for call in disk.calls)
    assert disk.lost() == []


def refused(one: Path, other: Path) -> None:
    raise OSError(22, "Invalid argument")


def test_each_step_of_moving_new_files_is_on_the_disk_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old seal goes first and the new one comes last, also for a disk that does things in its own order."""
    for name in ("seal", "part-1", "old"):
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(folders, "exchange", refused)
    disk = Disk(tmp_path, monkeypatch)
    monkeypatch.setattr(folders, "exchange", refused)
    write_thing(tmp_path)
    begun = disk.calls.index(f"name {folders.JOURNAL}")
    flush = f"flush {tmp_path.name}"
    assert disk.calls[begun + 1 : -1] == [
        *[flush, "unlink seal"],
        *[flush, "unlink old", "name part-1", "name part-2"],
        *[flush, "name seal"],
        *[flush, f"unlink {folders.PLAN}"],
    ]


def test_the_kernels_library_is_flushed_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a power cut emptied would never be compiled again: it is there. One without a name would."""
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nfor last; do :; done\necho "a library" > "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    disk = Disk(tmp_path, monkeypatch)
    made = cpu.compiled(tmp_path / "cache")
    assert f"name {made.name}" in disk.calls
    assert made.read_text() == "a library\n"
    assert disk.faults == []


def test_a_record_tells_of_no_answer_that_a_power_cut_could_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, told = tmp_path / "answers", []
    disk = Disk(tmp_path, monkeypatch)

    def checked(path: Path, record: dict[str, Any]) -> None:
        told.append((record["lines"], output.read_text(), not record["lines"] or disk.has(output)))
        write_json(path, record)

    monkeypatch.setattr(line_files, "write_json", checked)
    for size in ("FIRST", "WINDOW"):
        monkeypatch.setattr(line_files, size, 4)
    line_files.to_file(BytesIO(b"a\nb\nc\nd\ne\n"), output, lambda texts, tell: [t.upper() for t in texts], settings={})
    assert told == [(0, "", True), (2, "A\nB\n", True), (4, "A\nB\nC\nD\n", True), (5, "A\nB\nC\nD\nE\n", True)]
    assert disk.lost() == []
