"""Tables on a terminal: probabilities with bars, texts on one line each. A file or a pipe gets whole lines, no bars."""

from typing import TYPE_CHECKING, Any

from cutaway.cli.wording import shown

if TYPE_CHECKING:
    from rich.console import Console

BAR = 8  # cells of a bar for certainty
GAP = 2  # cells between columns


def stdout() -> "Console":
    """As wide as the terminal; elsewhere nothing is wrapped."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=100_000)


def grid(title: str = "", *, header: bool = False) -> Any:
    from rich.table import Table

    dim: dict[str, Any] = {"title": title or None, "title_justify": "left", "title_style": "dim", "header_style": "dim"}
    return Table(**dim, box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=header)


def chance(probability: float, console: "Console") -> list[Any]:
    """A probability, and on a terminal its bar: two cells of a table."""
    from rich.bar import Bar

    said = f"{probability:6.1%}"
    return [said, Bar(1.0, 0.0, probability, width=BAR)] if console.is_terminal else [said]


def echo(text: str, room: int) -> Any:
    """A text that was given, on one line, there only to be recognised: what does not fit is cut."""
    from rich.text import Text

    line = Text(shown(" ".join(text.split())))
    line.truncate(max(1, room), overflow="ellipsis")
    return line
