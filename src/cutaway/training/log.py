"""The run log: one JSON object a line, appended as things happen, in `run/log.jsonl`.

Events: start resume step evaluate skip checkpoint end. After a crash the lines of lost steps stay; whoever reads the
log takes the last line of each step.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Listener = Callable[[Event], None]


class RunLog:
    """Writes events to the file and tells everybody who listens. A full disk ends the log, not the run."""

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
            self._write(self.file, json.dumps(plain(event), ensure_ascii=False).encode() + b"\n")
        self.tell(event)

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def _write(self, file: FileIO, line: bytes) -> None:
        line = line if self.whole else b"\n" + line  # what a crash or a full disk cut short stays a line of its own
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


def plain(value: Any) -> Any:
    """JSON has no NaN: it becomes a word, which any reader can read and `float` reads again."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def read_log(path: Path) -> Iterator[Event]:
    """The events of a log; a line that a crash cut short is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event
