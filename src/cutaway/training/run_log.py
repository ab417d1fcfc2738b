"""The run log, `run/log.jsonl`: one JSON object per line for each event.

Events: start resume step evaluate skip checkpoint end. After a crash, the lines of lost steps remain; readers use
the last line of each step.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError
from cutaway.files import parse_json

Event = dict[str, Any]
LONGEST = 1 << 20  # bytes of a line
MOST = 1 << 62  # of steps, parameters
LARGEST = 1e100  # of a loss or a score
STEPS = ("step", "evaluate")  # events that are of a step
Listener = Callable[[Event], None]


class RunLog:
    """Writes events to the file and passes them to listeners. A full disk ends the log, not the run."""

    def __init__(self, path: Path | None, listeners: list[Listener]) -> None:
        self.path, self.listeners = path, listeners
        self.file: FileIO | None = None
        self.whole = self.works = True  # whether the last line has its end, and the last try to write succeeded
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = FileIO(path, "a+")
            if end := self.file.tell():
                self.whole = os.pread(self.file.fileno(), 1, end - 1) == b"\n"

    def __call__(self, event: Event) -> None:
        if self.file is not None:
            self._write(self.file, json.dumps(plain_values(event), ensure_ascii=False).encode() + b"\n")
        self.tell(event)

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def _write(self, file: FileIO, line: bytes) -> None:
        line = line if self.whole else b"\n" + line  # a line that a crash or a full disk truncated stays separate
        worked = self.works
        try:
            self.works = self.whole = file.write(line) == len(line)
        except OSError:
            self.works = False
        if worked and not self.works:
            self.tell({"event": "note", "text": f"{self.path} cannot be written: is the disk full?"})

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def plain_values(value: Any) -> Any:
    """NaN and infinity, which JSON does not have, as strings that `float` can read."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain_values(inner) for key, inner in value.items()}
    return [plain_values(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def as_floats(scores: dict[str, Any]) -> dict[str, float]:
    """Undoes `plain_values`."""
    return {name: float(value) for name, value in scores.items()}


def read_log(path: Path) -> Iterator[Event]:
    """The events of a log; truncated and invalid lines are left out."""
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST):
                try:
                    event = parse_json(line, str(path))
                except CheckpointError:
                    continue
                if _is_event(event):
                    yield event
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None


def _is_event(event: Event) -> bool:
    """Whether the values of an event have the types that readers rely on."""
    kind = event.get("event")
    if not isinstance(kind, str) or (kind in STEPS and event.get("step") is None):
        return False
    return all(event.get(name) is None or is_right(event[name]) for name, is_right in VALUES.items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """Whether this is a finite number; others are strings in a log."""
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _is_loss(value: Any) -> bool:
    return is_number(value) or value in ("nan", "inf", "-inf")


VALUES = {
    **dict.fromkeys(("name", "unit", "reason"), _is_text),
    **dict.fromkeys(("step", "steps", "parameters"), _is_count),
    **dict.fromkeys(("tokens_per_second", "seconds"), is_number),
    "loss": _is_loss,
}
