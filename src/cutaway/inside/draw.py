"""Pictures for the terminal. They say the same in colour and without: the darker the block, the larger the number."""

from collections.abc import Sequence

from jaxtyping import Float
from rich.text import Text
from torch import Tensor

BLOCKS = " ░▒▓█"
# Dark blue to yellow: readable for the colour-blind, and ordered in brightness too.
COLOURS = ("#26185f", "#3b528b", "#21918c", "#5ec962", "#fde725")


def heat_map(
    pattern: Float[Tensor, "query key"], *, rows: Sequence[str], columns: Sequence[str], cell: int = 3
) -> Text:
    """A pattern as a table of blocks: a row for each query, a column for each key."""
    margin = max(map(len, rows), default=0)
    picture = Text(" " * (margin + 2))
    picture.append("".join(f"{column[: cell - 1]:<{cell}}" for column in columns) + "\n", style="bold")
    for row, weights in zip(rows, pattern.tolist(), strict=True):
        picture.append(f"{row:>{margin}}  ", style="bold")
        for weight in weights:
            level = min(int(weight * len(BLOCKS)), len(BLOCKS) - 1)
            picture.append(BLOCKS[level] * (cell - 1) + " ", style=COLOURS[level])
        picture.append("\n")
    picture.rstrip()
    return picture
