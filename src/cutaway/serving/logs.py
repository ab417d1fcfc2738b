"""Logs as lines of JSON: when, what, and which request; never anybody's text.

    {"time": "2026-11-19T12:00:00.123Z", "level": "info", "event": "request", "id": "9f…", "route": "/v1/models", …}

An exception is logged by its type and the lines of code that it came through: its message may quote a text.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

OWN = ("cutaway", "uvicorn")  # whose messages hold nobody's text
logger = logging.getLogger("cutaway.serving")


class JsonLines(logging.Formatter):
    """A record as one line; its own fields are in `extra={"fields": …}`. What other packages say may quote anything:
    their messages are left out."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = record.getMessage() if record.name.split(".")[0] in OWN else f"a message of {record.name}"
        line: dict[str, Any] = {"time": moment, "level": record.levelname.lower(), "event": event}
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= exception_fields(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=str)


def exception_fields(error: BaseException) -> dict[str, Any]:
    """The type of an exception, and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    return {"exception": type(error).__name__, "at": [f"{one.filename}:{one.lineno} {one.name}" for one in frames[-8:]]}


def log_event(event: str, **fields: Any) -> None:
    logger.info(event, extra={"fields": {key: value for key, value in fields.items() if value is not None}})


def log_exception(error: BaseException, **fields: Any) -> None:
    logger.error("error", extra={"fields": {**fields, **exception_fields(error)}})


def start_logging() -> None:
    """Sends all logs to stderr as lines of JSON; of other packages warnings only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in OWN:
        logging.getLogger(name).setLevel(logging.INFO)
