"""Stdout and stderr as commands see them: what a terminal would obey is shown, and a reader who has gone is no error.

`print` and rich write to the same two streams. What is printed goes through `Stream.write`; rich, whose colours have to
arrive, writes past it, and its texts are made safe by `cutaway.cli.shared.console` instead.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cutaway.cli.shared.wording import visible_controls

GONE = (errno.EPIPE, errno.ESHUTDOWN)
NO_READER = 141  # 128 + SIGPIPE


class Stream:
    """A stream of text; `shows` says whether control characters are written as their escapes."""

    def __init__(self, stream: Any, shows: bool) -> None:
        self.rich_proxied_file = stream  # the name by which rich finds the stream behind this one
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
    """A terminal gets no control characters, and neither does stderr, wherever it goes: nothing there is data. What the
    encoding does not know is written as its escape."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:  # where a stream is closed, which Python calls None
        for stream in filter(None, before):
            with suppress(AttributeError, ValueError):  # a stream that somebody put there for a test
                stream.reconfigure(errors="backslashreplace")
        out, err = (stream or nowhere for stream in before)
        sys.stdout, sys.stderr = Stream(out, out.isatty()), Stream(err, True)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def unwritable(error: OSError) -> int | None:
    """The exit code where stdout takes nothing more: its reader has gone (`| head`), or it is full, which is said; None
    if something else failed."""
    if error.filename is not None or error.errno not in (*GONE, errno.ENOSPC):
        return None
    to_nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError, AttributeError):  # so that nothing is tried again when Python ends
        os.dup2(to_nowhere, sys.stdout.fileno())
    os.close(to_nowhere)
    if error.errno in GONE:
        return NO_READER
    with suppress(OSError):
        print(f"error: stdout cannot be written: {error.strerror}", file=sys.stderr)
    return 2
