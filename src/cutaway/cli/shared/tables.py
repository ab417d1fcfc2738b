"""Tables for a terminal: probabilities with bars, texts cut to a line. Files and pipes get whole lines without bars."""

import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.format import minus
from cutaway.cli.shared.wording import shown

if TYPE_CHECKING:
    from rich.text import Text

    from cutaway.cli.shared.console import Console
    from cutaway.decoding.alignment import Alignment

BAR = 8  # width of a bar
GAP = 2  # spaces between columns
WORD = 16  # letters of a word in a row's name


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON, with null for NaN and infinity, which JSON lacks, and control characters as escapes."""
    text = json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def stdout() -> "Console":
    """A console as wide as the terminal; in a file or a pipe nothing is wrapped."""
    from cutaway.cli.shared.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=100_000)


def grid(title: str = "", *, header: bool = False) -> Any:
    from rich.table import Table

    dim: dict[str, Any] = {"title": title or None, "title_justify": "left", "title_style": "dim", "header_style": "dim"}
    return Table(**dim, box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=header)


def chance(probability: float, console: "Console", bar: int = BAR) -> list[Any]:
    """Cells of a table: a probability and, on a terminal, a bar."""
    from rich.bar import Bar

    from cutaway.pictures.terminal import COLOURS

    said = minus(f"{probability:6.1%}")  # a share may be negative
    return [said, Bar(1.0, 0.0, probability, width=bar, color=COLOURS[-1])] if console.is_terminal else [said]


def guesses(chances: Sequence[tuple[str, float]], console: "Console", title: str = "", bar: int = BAR) -> Any:
    """A table of words with their probabilities, the most likely in bold."""
    from rich.text import Text

    table, most = grid(title), max((p for _, p in chances), default=0.0)
    for word, p in chances:
        said, *its_bar = chance(p, console, bar)
        table.add_row(said, Text(shown(word), "bold" if p == most else ""), *its_bar)
    return table


def show_alignment(alignment: "Alignment", width: int) -> "Text":
    """A heat map of an alignment; if the source words do not fit as columns, each row names its best one."""
    from cutaway.pictures.bars import fits, heat_map
    from cutaway.pictures.svg import cut_label

    columns = [shown(alignment.source[a:b]) for a, b in alignment.source_words]
    rows = [shown(alignment.target[a:b]) for a, b in alignment.target_words]
    if not fits(rows, columns, width):
        best = [shown(alignment.source[a:b]) for (a, b), _, _ in alignment.links()]
        rows = [f"{cut_label(word, WORD)} ← {cut_label(source, WORD)}" for word, source in zip(rows, best, strict=True)]
    return heat_map(alignment.matrix, rows=rows, columns=columns, width=width)


def echo(text: str, room: int) -> Any:
    """A text of the user on one line, cut to fit."""
    from rich.text import Text

    line = Text(shown(" ".join(text.split())))
    line.truncate(max(1, room), overflow="ellipsis")
    return line
