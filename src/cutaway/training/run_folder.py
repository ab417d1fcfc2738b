"""The folder of a run: where its files are, what may be there before it starts, and its lock.

OUT/        the model folder: config.json, model.safetensors, tokenizer.json, README.md, recipe.toml
OUT/run/    recipe.toml, begun.json (what a resumed run must find unchanged), checkpoints/, log.jsonl, lock; done.json
            when the model folder is complete
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cutaway.checkpoints.tensors import SINGLE
from cutaway.errors import CheckpointError
from cutaway.files import lock_file, read_json, replacing
from cutaway.folders import files_in, finish_replacing
from cutaway.training.checkpoint import HALF_WRITTEN, checkpoints
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import read_toml, to_toml

LOCK, TENSORBOARD = "lock", "events.out.tfevents.*"
RUN_BEFORE_LOCK = (TENSORBOARD,)  # the names in run/: everything else is written by whoever holds the lock
RUN = (LOCK, "log.jsonl", "recipe.toml", "begun.json", "done.json", "checkpoints", *RUN_BEFORE_LOCK)


class RunFolder:
    """The places of a run's files in its model folder `out`."""

    def __init__(self, out: Path) -> None:
        self.out, self.run = out, out / "run"
        self.checkpoints, self.log = self.run / "checkpoints", self.run / "log.jsonl"
        self.recipe, self.begun, self.done = (self.run / name for name in ("recipe.toml", "begun.json", "done.json"))

    def is_done(self) -> bool:
        """Whether the run has written its model folder, and the model is still there."""
        return self.done.exists() and all((self.out / name).exists() for name in ("config.json", SINGLE))

    def check(self, resume: bool, *, locked: bool = False) -> None:
        """Refuses, before anything is written, a folder that is neither new nor empty nor that of the run to resume.

        The files of an earlier run are looked at only when it is `locked`: another trainer may be writing them.
        """
        if self.out.exists() and not self.out.is_dir():
            raise CheckpointError(f"{self.out} is a file: choose another --out, a folder")
        finish_replacing(self.out)
        known = self.log.exists()
        if known and not locked:
            return
        if resume:
            if not known:
                raise CheckpointError(f"{self.out} holds no run: start it without --resume")
            if locked and not checkpoints(self.checkpoints) and self.is_done():
                raise CheckpointError(f"the run in {self.out} is done and its checkpoints are gone: it cannot go on")
            return
        if known and checkpoints(self.checkpoints):
            raise CheckpointError(f"{self.out} holds a run already: continue it with --resume, or choose another --out")
        ours = RUN if (self.run / LOCK).exists() else RUN_BEFORE_LOCK
        unknown = [path for path in files_in(self.run) if not any(fnmatch(path.name, name) for name in ours)]
        there = [path for path in (*files_in(self.out), *unknown) if path != self.run]
        if others := [path for path in there if not HALF_WRITTEN.fullmatch(path.name)]:
            is_model = (self.out / "config.json").exists()
            what = "a model" if is_model else f"other files ({others[0].relative_to(self.out)})"
            raise CheckpointError(f"{self.out} holds {what}, and a run needs a folder of its own: choose another --out")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the lock of the folder: one trainer at a time. The system releases it when the process ends."""
        try:
            self.run.mkdir(parents=True, exist_ok=True)
            file = (self.run / LOCK).open("a+")
        except OSError as error:
            raise CheckpointError(f"{self.run} cannot be written: {error.strerror}") from None
        with file:
            if not lock_file(file.fileno()):
                file.seek(0)
                holder = file.read().strip() or "unknown"
                raise CheckpointError(
                    f"{self.run} is in use by another trainer (process {holder}): choose another --out"
                )
            with suppress(OSError):  # on a full disk the lock holds, without our number in it
                os.ftruncate(file.fileno(), 0)
                os.write(file.fileno(), str(os.getpid()).encode())
            yield

    def forget(self) -> None:
        """Removes what an earlier run without checkpoints left."""
        for path in (self.recipe, self.begun, self.done):
            path.unlink(missing_ok=True)

    def write_recipe(self, recipe: Recipe) -> None:
        with replacing(self.recipe) as temporary:
            temporary.write_text(to_toml(recipe), encoding="utf-8")

    def read_recipe_values(self) -> dict[str, Any]:
        """The values of the recipe of the run that is here."""
        if self.recipe.exists():
            return read_toml(self.recipe)
        if self.begun.exists():  # a run from before there was run/recipe.toml
            values = read_json(self.begun).get("recipe")
            if isinstance(values, dict):
                return values
        raise CheckpointError(f"{self.out} holds no run: name a recipe or files to train on, without --resume")
