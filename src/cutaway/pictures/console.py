"""Rich's console, made safe for text from outside: control characters are shown as escapes, and neither [brackets] nor
:names: are interpreted, since file names, labels and tokens may contain anything."""

import errno
from collections.abc import Iterable
from io import StringIO
from typing import Any, NoReturn

import rich.console
from rich.segment import Segment

from cutaway.pictures.terminal_text import visible_controls

WIDTH = 80  # columns that reports are laid out for


class Console(rich.console.Console):
    """On stdout, or with `stderr=True` on stderr."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False} | options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible_controls(text), style, control)

    def on_broken_pipe(self) -> NoReturn:
        """Raises, as `print` does: the caller handles both in one place."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")


def report_console(file: StringIO | None = None) -> Console:
    """Stdout, or a text in memory, at most `WIDTH` columns wide."""
    terminal = Console(file=file)
    return Console(file=file, width=min(terminal.width, WIDTH) if terminal.is_terminal else WIDTH)


def has_colours(console: Console) -> bool:
    return console.is_terminal and not console.no_color
