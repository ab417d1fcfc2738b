"""Pictures for the terminal. They say the same in colour and without: the darker the block, the larger the number.

Nobody knows whether a terminal is dark or light. These colours are of middle brightness, so that each stands out on
black and on white; orange and blue are told apart by the colour-blind, too.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from jaxtyping import Float, UInt8
from rich.cells import cell_len, set_cell_size
from rich.text import Text
from torch import Tensor

from cutaway.pictures.terminal import BLOCKS, COLOURS, HOLE

PROBABILITY_COLOURS = {
    0.02: "#cc4f00",
    0.1: "#b06f3f",
    0.3: COLOURS[0],
    0.6: COLOURS[2],
    1.0: COLOURS[4],
}  # up to this probability


def probability_colour(probability: float) -> str:
    """Orange for what was a surprise, blue for what was to be expected."""
    return next((colour for most, colour in PROBABILITY_COLOURS.items() if probability < most), COLOURS[-1])


def heat_map(
    pattern: Float[Tensor, "query key"], *, rows: Sequence[str], columns: Sequence[str], width: int | None = None
) -> Text:
    """A pattern as a table of blocks: a row for each query, a column for each key, as wide as its name.

    Names are cut where all of them do not fit into `width`, those of columns first.
    """
    if width is not None:
        most = max(width // 3, width - 2 - 2 * len(columns))
        rows = [row if cell_len(row) <= most else set_cell_size(row, most - 1) + "…" for row in rows]
    margin = max(map(cell_len, rows), default=0)
    cells = _cells(columns, None if width is None else width - margin - 2)
    picture = Text(" " * (margin + 2))
    names = (set_cell_size(column, cell) for column, cell in zip(columns, cells, strict=True))
    picture.append(" ".join(names) + "\n", style="bold")
    for row, weights in zip(rows, pattern.tolist(), strict=True):
        picture.append(" " * (margin - cell_len(row)) + f"{row}  ", style="bold")
        for weight, cell in zip(weights, cells, strict=True):
            if not isfinite(weight):
                picture.append(HOLE * cell + " ")
                continue
            level = min(int(weight * len(BLOCKS)), len(BLOCKS) - 1)
            picture.append(BLOCKS[level] * cell + " ", style=COLOURS[level])
        picture.append("\n")
    picture.rstrip()
    return picture


def fits(rows: Sequence[str], columns: Sequence[str], width: int) -> bool:
    """Whether a heat map has room for its columns' names."""
    return max(map(cell_len, rows), default=0) + 1 + sum(cell + 1 for cell in _cells(columns, None)) <= width


def _cells(columns: Sequence[str], room: int | None) -> list[int]:
    """How wide each column is: at least two, so that a block can be seen, unless there is no room."""
    wide = [max(2, cell_len(column)) for column in columns]
    most = max(wide, default=2)
    while room is not None and most > 1 and sum(min(cell, most) + 1 for cell in wide) > room + 1:
        most -= 1
    return [min(cell, most) for cell in wide]


def half_blocks(picture: UInt8[np.ndarray, "height width"]) -> Text:
    """A grey picture, two pixels to a character; in colours with its shades, without them white or nothing."""
    height, width = picture.shape
    lines = []
    for top in range(0, height, 2):
        line = Text()
        for x in range(width):
            upper, lower = int(picture[top, x]), int(picture[top + 1, x]) if top + 1 < height else 0
            block = " ▄▀█"[2 * (upper > 127) + (lower > 127)]
            ink, paper = (lower, upper) if block == "▄" else (upper, lower)
            if block in " █":  # one shade for both
                ink = paper = (upper + lower) // 2
            line.append(block, style=f"rgb({ink},{ink},{ink}) on rgb({paper},{paper},{paper})")
        lines.append(line)
    return Text("\n").join(lines)
