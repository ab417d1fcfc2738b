"""Folders that commands write: what may be replaced, and how the files of a folder are replaced all at once.

Every room may use it. Each kind of folder has a `seal`, the file that makes it one (config.json of a model). The new
files are written into a hidden folder, flushed to the disk, and then

- the two folders are exchanged in one system call. Other files of the old folder are hard links in the new one;
- or, where that is impossible (a mount point, a folder with other folders or the working directory in it, a file system
  that cannot exchange), the hidden folder becomes `.cutaway-replacing` in the old one, with one rename. Then the new
  files are moved to their places: the old seal is removed first, and the new one moved last. After a kill, readers call
  `finish_replacing`, which moves the rest; other tools find no seal, and so no mixture.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

from cutaway.errors import CheckpointError, CutawayError, InputError
from cutaway.files import flush, held, is_plain, read_json, remove_temporary, write_json

JOURNAL, PLAN = ".cutaway-replacing", ".plan.json"
AT_CWD, LINUX_EXCHANGE, MAC_SWAP = -100, 2, 2  # of renameat2 and renamex_np


DRAWN, MOST = b'class="cutaway-', 1 << 26  # occurs in every page and picture that we write


@dataclass(frozen=True)
class Kind:
    """A kind of folder: `files` are patterns of the names in it, `seal` is the file that is written last.

    Where other programs have files of the seal's name, too, one that matches `beside` tells ours from theirs.
    """

    what: str
    seal: str
    files: tuple[str, ...]
    beside: tuple[str, ...] = ("*",)

    def knows(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.files)

    def is_in(self, folder: Path) -> bool:
        names = [path.name for path in files_in(folder)]
        return (folder / self.seal).is_file() and any(fnmatch(name, one) for name in names for one in self.beside)


TOKENIZER = Kind("tokenizer", "tokenizer.json", ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
VECTORS = Kind("word vectors", "vectors.npy", ("vectors.npy", "words.txt"))


def check_folder(
    folder: Path, kind: Kind, *, force: bool, by: str = "force=True", shared: bool = False, name: str = ""
) -> None:
    """Refuses a folder that must not be written: only a new or empty one may, or with `force` one of the same kind.

    For messages, `by` is how one forces it, and `name` the option of the folder (--out). `shared`: other files may be
    there, too.
    """
    shown = f"{name} {folder}".strip()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{shown} is a file: name a folder to write")
    finish_replacing(folder)
    there = files_in(folder)
    if not there:
        return
    if not kind.is_in(folder):
        raise InputError(f"{shown} holds other files and no {kind.what}: name another folder")
    others = [path.name for path in there if not kind.knows(path.name)]
    if others and not shared:
        raise InputError(f"{shown} has other files ({others[0]}): name a folder of its own")
    if not force:
        raise InputError(f"{shown} is not empty: name another folder, or replace the {kind.what} in it with {by}")


def check_file(path: Path, *, force: bool) -> None:
    """Refuses to replace a file, unless with --force, or if it is a page or picture that we wrote."""
    if path.exists() and not path.is_file():
        raise InputError(f"--out {path} is not a regular file: name another")
    if force or not path.exists():
        return
    with suppress(OSError), path.open("rb") as file:
        if DRAWN in file.read(MOST):
            return
    raise InputError(f"--out {path} is there: name another file, or replace it with --force")


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def replacing_folder(path: Path, kind: Kind, stale: Sequence[str] | None = None) -> Iterator[Path]:
    """Yield a new folder whose files replace those in `path` at the end, all at once or not at all.

    Earlier files that match `stale` (by default, all files of this kind) and are not written again are removed; other
    files of `path` stay. A kill can leave a hidden `.name.….tmp`, which the next writer of the same folder removes.
    """
    given, path = path, path.resolve()
    finish_replacing(path)
    with suppress(OSError):
        (path / JOURNAL).rmdir()  # an empty one, after a kill at the last moment
    within = path.is_dir() and _stays(path)
    place = path / path.name if within else path
    remove_temporary(place)
    fresh = place.with_name(f".{place.name}.{uuid4().hex}.tmp")
    made = [folder for folder in fresh.parents if not folder.exists()]
    exchanged = False
    try:
        fresh.mkdir(parents=True)
        with held(fresh):
            yield fresh
            for file in (*fresh.iterdir(), fresh):
                flush(file)
            old = [entry for entry in files_in(path) if entry != fresh]
            exchanged = _switch(path, fresh, old, kind.seal, kind.files if stale is None else stale, within)
            flush(path.parent)
            if exchanged:
                _retire(fresh, path, {entry.name for entry in old})
    except OSError as error:
        raise CheckpointError(f"{given} cannot be written: {error.strerror or error}") from error
    except CutawayError as error:
        error.args = (str(error).replace(str(fresh), str(given)),)
        raise
    finally:
        if not exchanged:
            shutil.rmtree(fresh, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()  # where nothing was written into it


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a hidden folder that becomes `path` at the end, with all its files; an error leaves `path` as it was.

    Unlike `replacing_folder`, nothing of an earlier `path` stays. A kill can leave the hidden `.name.….tmp`, which
    `remove_left` removes.
    """
    fresh = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        fresh.mkdir(parents=True)
        with held(fresh):
            yield fresh
            for file in (*fresh.iterdir(), fresh):
                flush(file)
            _take_place(fresh, path)
            flush(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _take_place(fresh: Path, path: Path) -> None:
    """An earlier folder becomes the hidden one, at once where the system can exchange them."""
    if path.exists():
        with suppress(OSError):
            exchange(fresh, path)
            return
        old = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        path.rename(old)
        fresh.rename(path)
        shutil.rmtree(old, ignore_errors=True)
        return
    fresh.rename(path)


def finish_replacing(folder: Path) -> None:
    """Finishes a replacement that was killed. Readers of a folder call this first; it costs one stat."""
    journal = folder / JOURNAL
    if not os.path.isfile(journal / PLAN) or journal.is_symlink():  # also False if the name is too long for the system
        return
    try:
        with held(journal):
            if (journal / PLAN).is_file():  # else another has just done it
                _move(folder, journal)
    except OSError as error:
        raise CheckpointError(
            f"{folder} was being replaced when its writer was stopped, and the rest cannot be done now: "
            f"{error.strerror or error}"
        ) from error


def exchange(one: Path, other: Path) -> None:
    """Exchanges two folders in one system call; an OSError if the system or the file system cannot."""
    names = os.fsencode(one), os.fsencode(other)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if sys.platform == "darwin":
            failed = libc.renamex_np(*names, MAC_SWAP)
        else:
            failed = libc.renameat2(AT_CWD, names[0], AT_CWD, names[1], LINUX_EXCHANGE)
    except AttributeError:
        raise OSError("this system cannot exchange two folders") from None
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _stays(path: Path) -> bool:
    """Whether this folder cannot be renamed: a mount point, the working directory, or without write access above."""
    return path.is_mount() or Path.cwd().is_relative_to(path) or not os.access(path.parent, os.W_OK)


def _switch(path: Path, fresh: Path, old: list[Path], seal: str, stale: Sequence[str], within: bool) -> bool:
    """Puts the new files in place; whether the folders were exchanged, so that `fresh` is now the old one."""
    new, folders = {file.name for file in fresh.iterdir()}, {entry for entry in old if _is_folder(entry)}
    if taken := next((entry for entry in sorted(folders) if entry.name in new), None):
        raise CheckpointError(f"{taken} is a folder, where a file should go: move it, or name another folder")
    gone = {entry for entry in old if any(fnmatch(entry.name, pattern) for pattern in stale)} - folders
    kept = [entry for entry in old if entry.name not in new and entry not in gone]
    if path.is_dir():
        shutil.copymode(path, fresh)
    if not old and not within:
        fresh.rename(path)
        return False
    if not within and not folders and _exchanged(path, fresh, kept):
        return True
    write_json(fresh / PLAN, {"seal": seal, "remove": sorted(entry.name for entry in gone if entry.name not in new)})
    fresh.rename(path / JOURNAL)
    flush(path)
    _move(path, path / JOURNAL)  # which we have locked: a reader who finds it waits for us
    return False


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _exchanged(path: Path, fresh: Path, kept: list[Path]) -> bool:
    """Exchanges the folders, keeping other files; False without hard links, or if folders cannot be exchanged."""
    try:
        for entry in kept:
            os.link(entry, fresh / entry.name, follow_symlinks=False)
        flush(fresh)
        exchange(fresh, path)
    except OSError:
        for entry in kept:
            (fresh / entry.name).unlink(missing_ok=True)
        return False
    return True


def _retire(old: Path, path: Path, known: set[str]) -> None:
    """Removes the old folder; files that were added to it at the last moment move to the new one."""
    for entry in files_in(old):
        if entry.name in known:
            entry.unlink()
        else:
            entry.rename(path / entry.name)
    old.rmdir()


def _move(folder: Path, journal: Path) -> None:
    """Moves the new files to their places; it may be stopped at any moment and repeated."""
    plan = read_json(journal / PLAN)
    seal, gone = plan.get("seal"), plan.get("remove")
    if not isinstance(seal, str) or not isinstance(gone, list) or not all(map(is_plain, [seal, *gone])):
        raise CheckpointError(f"{journal / PLAN} is not ours: remove {journal}")
    new = sorted(file.name for file in journal.iterdir() if file.name != PLAN)
    if seal in new:
        (folder / seal).unlink(missing_ok=True)
        flush(folder)
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    for name in new:
        if name != seal:
            (journal / name).replace(folder / name)
    if seal in new:
        flush(folder)
        (journal / seal).replace(folder / seal)
    flush(folder)
    (journal / PLAN).unlink()
    with suppress(OSError):
        journal.rmdir()
