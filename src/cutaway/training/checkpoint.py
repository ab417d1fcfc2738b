"""Checkpoints of a run: everything that the next step depends on, whole or absent.

    run/checkpoints/step-00002000/
        weights.safetensors      the parameters
        optimizer.safetensors    what the optimizer remembers
        average.safetensors      the moving average of the weights, where there is one
        state.json               the step, the counters, what the run depends on
        manifest.json            the SHA-256 of each of them

A checkpoint is written into a hidden folder, flushed to the disk, and renamed: at any instant it is there with all its
files, or it is not there. When it is read, every byte is held against the manifest; if one does not fit, the checkpoint
before it is taken.
"""

import hashlib
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch import Tensor

from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError
from cutaway.files import flush, read_json, remove_left, write_json
from cutaway.folders import exchange

NAME = re.compile(r"step-(\d{8,})")
HALF_WRITTEN = re.compile(r"\.(step-\d{8,}\.|old-)[0-9a-f]{32}|\..+\.[0-9a-f]{32}\.tmp")  # nobody else's files
MANIFEST, STATE = "manifest.json", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """One that was read and found whole."""

    path: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])

    def tensors(self, name: str) -> TensorSource:
        return open_tensors(self.path / f"{name}.safetensors")

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.safetensors").exists()


def write_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]
) -> Path:
    """Writes a checkpoint; an error leaves the older ones as they were."""
    final, temporary = folder / f"step-{step:08d}", folder / f".step-{step:08d}.{uuid4().hex}"
    need = sum(tensor.nbytes for group in tensors.values() for tensor in group.values())
    try:
        temporary.mkdir(parents=True)
        for name, group in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", group)
        write_json(temporary / STATE, {**state, "step": step})
        files = sorted(path for path in temporary.iterdir() if path.name != MANIFEST)
        write_json(temporary / MANIFEST, {path.name: _digest(path) for path in files})
        _put(temporary, final)
        flush(folder)
    except (OSError, CheckpointError) as error:
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        older = [path.name for path in checkpoints(folder)]
        kept = f"{older[-1]} is whole" if older else "no older one exists"
        raise CheckpointError(
            f"the checkpoint {final} could not be written ({error}); it needs {need / 1e6:,.1f} MB, "
            f"{free / 1e6:,.1f} MB are free; {kept}. Free some space, or copy the run's folder elsewhere, "
            f"and continue with --resume"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _put(temporary: Path, final: Path) -> None:
    """Where the same step is there, after a resume, the new one takes its place."""
    if final.exists():
        with suppress(OSError):  # where folders cannot change places, a kill here leaves the checkpoints before it
            exchange(temporary, final)
            return
        final.rename(final.with_name(f".old-{uuid4().hex}"))
    temporary.rename(final)


def checkpoints(folder: Path) -> list[Path]:
    """Those that were finished, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and (path / MANIFEST).exists()]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def clean(folder: Path) -> None:
    """Removes what a crash left half written. Only the run that holds the lock may."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if HALF_WRITTEN.fullmatch(path.name):
            remove_left(path)


def regular(folder: Path, step: int, every: int = 1) -> list[Path]:
    """The checkpoints of every so many steps up to `step`, and the one of that step. One that was made on the way, when
    somebody stopped the run, is none of them later on: a run that was stopped ends as one that was not."""
    there = [path for path in checkpoints(folder) if step_of(path) <= step]
    return [path for path in there if step_of(path) % every == 0 or step_of(path) == step]


def keep_newest(folder: Path, n: int, step: int, besides: int | None = None, every: int = 1) -> None:
    """Removes all but the newest n regular checkpoints of a run that is at `step`, and the one of the step `besides`.

    Those of later steps could not be read, or the run would have gone on from there; it will write over them.
    """
    kept = regular(folder, step, every)[-n:]
    for path in checkpoints(folder):
        if path not in kept and step_of(path) != besides and step_of(path) < step:
            hidden = folder / f".old-{uuid4().hex}"  # gone in one instant, then taken apart
            with suppress(OSError):
                path.rename(hidden)
                shutil.rmtree(hidden, ignore_errors=True)


def newest(folder: Path, complain: Any = print) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one is named, and the one before it tried."""
    for path in reversed(checkpoints(folder)):
        try:
            return read_checkpoint(path)
        except CheckpointError as error:
            complain(f"{error}; trying the one before it")
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """Checks every file against the manifest."""
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
