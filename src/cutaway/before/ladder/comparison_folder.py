"""The folder of a comparison, which is marked as ours before anything is written: no other folder is ever cleared."""

import re
import shutil
from pathlib import Path

from cutaway.errors import InputError
from cutaway.files import write_json
from cutaway.folders import files_in

MARK, FOUND = "begun.json", "compare.json"
FOLDERS = ("models", "scores", "text")
OURS = re.compile(
    r"begun\.json|text/(train|valid|held_out)/\d+\.txt|text/tokenizer/tokenizer(_config)?\.json|scores/[a-z0-9-]+\.npy"
    r"|models/(order-\d|classes|lstm|transformer)/.*|(.*/)?\.[^/]+\.[0-9a-f]{32}\.tmp(/.*)?"
)


def check_place(out: Path, resume: bool) -> None:
    """Refuses, before anything is read, a folder that is not new, not empty, and not of a comparison."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: name a folder")
    there = (out / FOUND).exists()
    if resume and not there:
        raise InputError(f"--out {out} holds no comparison: start one without --resume")
    if there and not resume:
        raise InputError(f"--out {out} holds a comparison: continue it with --resume, or name another")
    if not resume and (others := _others(out)):
        raise InputError(f"--out {out} has other files ({others[0]}): name a folder of its own")


def begin(out: Path) -> None:
    """Marks the folder, and removes what an earlier comparison left that was stopped before its first result."""
    check_place(out, resume=False)
    for folder in FOLDERS:
        shutil.rmtree(out / folder, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / MARK, {"comparison": "begun"})


def _others(out: Path) -> list[str]:
    """The files that are not ours; without our mark, all of them."""
    if not (out / MARK).is_file():
        return [path.name for path in files_in(out)]
    files = (path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(name for name in files if not OURS.fullmatch(name))
