"""Standing guard over a run: one trainer to a folder, and signals that end it after a step, not within."""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType

from cutaway.errors import CheckpointError
from cutaway.folders import files_in, finish_replacing
from cutaway.training.checkpoint import HALF_WRITTEN, checkpoints

RUN = ("lock", "log.jsonl", "begun.json", "done.json", "checkpoints", "events.out.tfevents.*")  # what run/ holds


def check_run_folder(out: Path, resume: bool, *, locked: bool = False) -> None:
    """Refuses, before anything is written, a folder that is neither new nor empty nor that of the run to go on with.

    What a run of ours has come to is looked at when it is `locked`: another trainer may be at work there.
    """
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out} is a file: choose another --out, a folder")
    finish_replacing(out)
    run = out / "run"
    known = (run / "log.jsonl").exists()
    if known and not locked:
        return
    if resume:
        if not known:
            raise CheckpointError(f"{out} holds no run: start it without --resume")
        return
    if known and checkpoints(run / "checkpoints"):
        raise CheckpointError(f"{out} holds a run already: continue it with --resume, or choose another --out")
    strange = [path for path in files_in(run) if not any(fnmatch(path.name, name) for name in RUN)]
    others = [path for path in [*files_in(out), *strange] if path != run and not HALF_WRITTEN.fullmatch(path.name)]
    if others:
        what = "a model" if (out / "config.json").exists() else f"other files ({others[0].relative_to(out)})"
        raise CheckpointError(f"{out} holds {what}, over which no run is started: choose another --out")


@contextmanager
def locked_run(folder: Path) -> Iterator[None]:
    """Holds the folder's lock. The system lets go of it when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise CheckpointError(
                f"{folder} is in use by another trainer (process {holder}): choose another --out"
            ) from None
        with suppress(OSError):  # on a full disk the lock holds, without our number in it
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


class Interruption:
    """Set when somebody asked the run to stop: SIGTERM, or Ctrl-C. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 130 if self.signal == signal.SIGINT else 0

    @contextmanager
    def listening(self, say: Callable[[str], None] = lambda text: None) -> Iterator["Interruption"]:
        def note(number: int, frame: FrameType | None) -> None:
            if self.signal == signal.SIGINT == number:
                raise KeyboardInterrupt
            self.signal = number
            with suppress(RuntimeError):  # the signal came while somebody was writing to the same stream
                say("saving after this step …")

        try:
            before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not in the main thread: whoever runs us there stops us in another way
            yield self
            return
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
