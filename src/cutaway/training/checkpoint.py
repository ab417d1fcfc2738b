"""Checkpoints of a run: everything that the next step depends on, whole or absent.

    run/checkpoints/step-00002000/
        weights.safetensors      the parameters
        optimizer.safetensors    the state of the optimizer
        average.safetensors      the moving average of the weights, where there is one
        state.json               the step, the counters, what the run depends on
        manifest.json            the SHA-256 of each of them

A checkpoint is written into a hidden folder, flushed to the disk, and renamed: at any instant it is there with all its
files, or it is not there. When it is read, all files are compared with the manifest; if one differs, the checkpoint
before it is used.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch import Tensor

from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.files import read_json, remove_left, write_json
from cutaway.folders import whole_folder

NAME = re.compile(r"step-(\d{8,})")
HALF_WRITTEN = re.compile(r"\.(step-\d{8,}\.|old-)[0-9a-f]{32}|\..+\.[0-9a-f]{32}\.tmp")  # only our hidden names
MANIFEST, STATE = "manifest.json", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and is whole."""

    path: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def tensors(self, name: str) -> TensorSource:
        return open_tensors(self.path / f"{name}.safetensors")


def write_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> Path:
    """Writes a checkpoint; an error leaves older ones as they were."""
    final = folder / f"step-{step:08d}"
    need = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
    try:
        with whole_folder(final) as fresh:
            for name, group in tensors.items():
                write_tensors(fresh / f"{name}.safetensors", group)
            write_json(fresh / STATE, {**state, "step": step})
            files = sorted(path for path in fresh.iterdir() if path.name != MANIFEST)
            write_json(fresh / MANIFEST, {path.name: _digest(path) for path in files})
    except (OSError, CheckpointError) as error:
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        older = [path.name for path in checkpoints(folder)]
        kept = f"{older[-1]} is whole" if older else "there is no older one"
        raise CheckpointError(
            f"the checkpoint {final} could not be written ({error}); it needs {need / 1e6:,.1f} MB, "
            f"{free / 1e6:,.1f} MB are free; {kept}. Free some space, or copy the run's folder elsewhere, "
            f"and continue with --resume"
        ) from error
    return final


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and (path / MANIFEST).exists()]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def clean(folder: Path) -> None:
    """Removes what a crash left half written. Only for the run that holds the lock."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if HALF_WRITTEN.fullmatch(path.name):
            remove_left(path)


def regular(folder: Path, step: int, every: int = 1) -> list[Path]:
    """The checkpoints of every n-th step up to `step`, and the one of that step.

    A checkpoint that was made when the run was stopped is not among them later: a stopped run ends as any other.
    """
    there = [path for path in checkpoints(folder) if step_of(path) <= step]
    return [path for path in there if step_of(path) % every == 0 or step_of(path) == step]


def keep_newest(folder: Path, n: int, step: int, besides: int | None = None, every: int = 1) -> None:
    """Removes all but the newest n regular checkpoints of a run that is at `step`, and the one of the step `besides`.

    Those of later steps are damaged, or the run would have continued from there; it will replace them.
    """
    kept = regular(folder, step, every)[-n:]
    for path in checkpoints(folder):
        if path not in kept and step_of(path) != besides and step_of(path) < step:
            hidden = folder / f".old-{uuid4().hex}"  # gone at once, then removed file by file
            with suppress(OSError):
                path.rename(hidden)
                shutil.rmtree(hidden, ignore_errors=True)


def newest(folder: Path, note: Callable[[str], None] = print) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are reported and skipped."""
    for path in reversed(checkpoints(folder)):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            note(f"{error}; trying the one before it")
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in this folder; all files are compared with the manifest."""
    manifest = read_json(path / MANIFEST)
    needed = {STATE, "weights.safetensors", "optimizer.safetensors"}
    if missing := sorted(needed - manifest.keys()):
        raise CheckpointError(f"{path / MANIFEST} does not list {missing[0]}")
    for name, digest in manifest.items():
        if "/" in name or not (path / name).is_file():
            raise CheckpointError(f"{path / name}, which {MANIFEST} lists, is missing")
        if _digest(path / name) != digest:
            raise CheckpointError(f"{path / name} is damaged: its SHA-256 is not the one in {MANIFEST}")
    return Checkpoint(path, read_json(path / STATE))


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
