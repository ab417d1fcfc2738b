"""Tables in a terminal: probabilities with their bars, tokens, alignments, and pictures between them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.pictures.terminal_text import minus, shown

if TYPE_CHECKING:
    from rich.text import Text

    from cutaway.decoding.alignment import Alignment
    from cutaway.pictures.console import Console
    from cutaway.pictures.picture import Picture

BAR = 8  # cells of the bar of a probability
GAP = 2  # cells between columns
WORD = 16  # letters of a word in a row's name


def stdout() -> "Console":
    """As wide as the terminal; a file or a pipe gets whole lines."""
    from cutaway.pictures.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=100_000)


def grid(title: str = "", *, header: bool = False) -> Any:
    from rich.table import Table

    dim: dict[str, Any] = {"title": title or None, "title_justify": "left", "title_style": "dim", "header_style": "dim"}
    return Table(**dim, box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=header)


def chance(probability: float, console: "Console", bar: int = BAR) -> list[Any]:
    """A probability, and on a terminal its bar: two cells of a table."""
    from rich.bar import Bar

    from cutaway.pictures.terminal import COLOURS

    said = minus(f"{probability:6.1%}")  # a share of a task may be negative
    return [said, Bar(1.0, 0.0, probability, width=bar, color=COLOURS[-1])] if console.is_terminal else [said]


def guesses(chances: Sequence[tuple[str, float]], console: "Console", title: str = "", bar: int = BAR) -> Any:
    """A table of words with their probabilities, the likeliest in bold."""
    from rich.text import Text

    table, most = grid(title), max((p for _, p in chances), default=0.0)
    for word, p in chances:
        said, *its_bar = chance(p, console, bar)
        table.add_row(said, Text(shown(word), "bold" if p == most else ""), *its_bar)
    return table


def show_alignment(alignment: "Alignment", width: int) -> "Text":
    """Where each word of a translation looked: a heat map; where the source's words have no room, rows name them."""
    from cutaway.pictures.bars import fits, heat_map
    from cutaway.pictures.svg import cut_label

    columns = [shown(alignment.source[a:b]) for a, b in alignment.source_words]
    rows = [shown(alignment.target[a:b]) for a, b in alignment.target_words]
    if not fits(rows, columns, width):
        best = [shown(alignment.source[a:b]) for (a, b), _, _ in alignment.links()]
        rows = [f"{cut_label(word, WORD)} ← {cut_label(source, WORD)}" for word, source in zip(rows, best, strict=True)]
    return heat_map(alignment.matrix, rows=rows, columns=columns, width=width)


def token_row(names: Sequence[str]) -> "Text":
    """A text as its tokens, with a dim bar between them."""
    from rich.text import Text

    from cutaway.pictures.picture_data import visible_text

    row = Text()
    for number, name in enumerate(names):
        row.append("│" if number else "", "dim")
        row.append(visible_text(name))
    return row


def draw_picture(console: "Console", picture: "Picture", *, heading: bool = True) -> None:
    """Prints a picture, in colours where the console has them."""
    from rich.text import Text

    from cutaway.pictures.console import WIDTH, has_colours

    drawn = Text.from_ansi(picture.text(min(console.width, WIDTH), has_colours(console)))
    title, *rest = drawn.split("\n")
    if heading:
        title.stylize("bold")
        console.print(title, soft_wrap=True)
    console.print(Text("\n").join(rest), soft_wrap=True)
