"""Stdout and stderr of the commands: control characters are shown as escapes, and a closed pipe is not an error.

`print` and rich write to the same two streams. `print` goes through `Stream.write`; rich bypasses it, because its
colours are control characters, and `cutaway.pictures.console` makes its text safe.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cutaway.pictures.terminal_text import visible_controls

GONE = (errno.EPIPE, errno.ESHUTDOWN)
NO_READER = 141  # 128 + SIGPIPE


class Stream:
    """A text stream; if `shows` is true, control characters are written as escapes."""

    def __init__(self, stream: Any, shows: bool) -> None:
        self.rich_proxied_file = stream  # rich finds the original stream by this name
        self.shows = shows

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(visible_controls(text) if self.shows else text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Keeps control characters from the terminal and stderr; writes characters that the encoding lacks as escapes."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:  # for a closed stream, which is None in Python
        for stream in filter(None, before):
            with suppress(AttributeError, ValueError):  # a stream of a test
                stream.reconfigure(errors="backslashreplace")
        out, err = (stream or nowhere for stream in before)
        sys.stdout, sys.stderr = Stream(out, out.isatty()), Stream(err, True)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def unwritable(error: OSError) -> int | None:
    """The exit code if stdout cannot be written, because its reader has gone (`| head`) or the disk is full, which is
    reported; None for other errors."""
    if error.filename is not None or error.errno not in (*GONE, errno.ENOSPC):
        return None
    to_nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError, AttributeError):  # so that Python does not try to flush again when it ends
        os.dup2(to_nowhere, sys.stdout.fileno())
    os.close(to_nowhere)
    if error.errno in GONE:
        return NO_READER
    with suppress(OSError):
        print(f"error: stdout cannot be written: {error.strerror}", file=sys.stderr)
    return 2
