"""Rich's console for commands, which prints text as it is: [brackets] and :names: are not markup, since file names,
labels and tokens may hold them, and control characters are shown as escapes."""

import errno
from collections.abc import Iterable
from typing import Any, NoReturn

import rich.console
from rich.segment import Segment

from cutaway.cli.shared.wording import visible_controls


class Console(rich.console.Console):
    """On stdout, or with `stderr=True` on stderr."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False} | options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible_controls(text), style, control)

    def on_broken_pipe(self) -> NoReturn:
        """Raises the error that `print` would raise, too."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")
