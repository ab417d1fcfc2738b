"""What commands print: JSON, tables on a terminal, and texts on one line each. A file or a pipe gets whole lines."""

from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.wording import shown
from cutaway.pictures.terminal_tables import GAP, chance, grid, guesses, show_alignment
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.cli.shared.console import Console

__all__ = ["GAP", "chance", "echo", "grid", "guesses", "json_text", "show_alignment", "stdout"]


def stdout() -> "Console":
    """As wide as the terminal; elsewhere nothing is wrapped."""
    from cutaway.cli.shared.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=100_000)


def echo(text: str, room: int) -> Any:
    """A text that was given, on one line, there only to be recognised: what does not fit is cut."""
    from rich.text import Text

    line = Text(shown(" ".join(text.split())))
    line.truncate(max(1, room), overflow="ellipsis")
    return line
