"""Tables on a terminal: probabilities with bars, texts on one line each. A file or a pipe gets whole lines, no bars."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

BAR = 8  # cells of a bar for certainty


def stdout() -> "Console":
    """As wide as the terminal; elsewhere nothing is wrapped."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=100_000)


def grid(title: str = "") -> Any:
    from rich.table import Table

    titled: dict[str, Any] = {"title": title or None, "title_justify": "left", "title_style": "dim"}
    return Table(**titled, box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)


def chance(probability: float, console: "Console") -> list[Any]:
    """A probability, and on a terminal its bar: two cells of a table."""
    from rich.bar import Bar

    said = f"{probability:6.1%}"
    return [said, Bar(1.0, 0.0, probability, width=BAR)] if console.is_terminal else [said]
