"""The run log: one JSON object a line, appended as things happen, in `run/log.jsonl`.

Events: start resume step evaluate skip checkpoint end. After a crash the lines of lost steps stay; whoever reads the
log takes the last line of each step.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

Event = dict[str, Any]
Listener = Callable[[Event], None]


class RunLog:
    """Writes events to the file and tells everybody who listens."""

    def __init__(self, path: Path | None, listeners: list[Listener]) -> None:
        self.listeners = listeners
        self.file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", encoding="utf-8")

    def __call__(self, event: Event) -> None:
        if self.file is not None:
            self.file.write(json.dumps(_plain(event), ensure_ascii=False) + "\n")
            self.file.flush()
        for listener in self.listeners:
            listener(event)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _plain(value: Any) -> Any:
    """JSON has no NaN: it becomes a word, so that any reader can read the log."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def read_log(path: Path) -> Iterator[Event]:
    """The events of a log; a last line that a crash cut short is left out."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event
