"""Pictures in letters, for a terminal, a log or a mail. They say the same in colour and without.

Nobody knows whether a terminal is dark or light. These colours are of middle brightness, so that each stands out on
black and on white; orange and blue are told apart by the colour-blind, too.
"""

from collections.abc import Sequence

import numpy as np

from cutaway.pictures.colour import Scale, max_pool
from cutaway.pictures.picture_data import Array, number, round_values, short, visible_text
from cutaway.pictures.svg import cells, cut_label

BLOCKS = " ░▒▓█"
BELOW = " ·-=≡"  # the same levels of negative numbers
COLOURS = ("#8a8a8a", "#6d8dab", "#4a8abc", "#2581c8", "#0078d4")  # grey to blue, a colour for each block
WARM = ("#8a8a8a", "#a07a60", "#b06f3f", "#be6220", "#cc4f00")  # grey to orange, for negative numbers
HOLE = "–"
MOST_ROWS = 64


def ansi_coloured(text: str, colour: str) -> str:
    """`text` in an ANSI colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"


def level(value: float, scale: Scale) -> int:
    """−4…4: how far from 0, or from the least, a number is on its scale."""
    if scale.kind == "diverging":
        share = min(abs(value) / (scale.high or 1.0), 1.0)
    else:
        share = min(max((value - scale.low) / ((scale.high - scale.low) or 1.0), 0.0), 1.0)
    share = share**0.5 if scale.root else share
    found = min(int(share * len(BLOCKS)), len(BLOCKS) - 1)
    return -found if scale.kind == "diverging" and value < 0 else found


def shaded_block(value: float, scale: Scale, wide: int, colour: bool) -> str:
    if not np.isfinite(value):
        return HOLE * wide
    found = level(value, scale)
    shape = (BLOCKS if found >= 0 else BELOW)[abs(found)] * wide
    return ansi_coloured(shape, (COLOURS if found >= 0 else WARM)[abs(found)]) if colour else shape


def padded_text(text: str, wide: int, right: bool = False) -> str:
    """`text` in exactly so many columns."""
    text = cut_label(text, wide)
    space = " " * (wide - cells(text))
    return space + text if right else text + space


def wrapped_text(words: Sequence[str], shown: Sequence[str], room: int) -> list[str]:
    """Words in lines of at most so many columns; `shown` are the same with their colours."""
    lines: list[list[str]] = [[]]
    used = 0
    for word, coloured in zip(words, shown, strict=True):
        if used + cells(word) > room and used:
            lines.append([])
            used = 0
        lines[-1].append(coloured)
        used += cells(word) + 1
    return [" ".join(line) for line in lines]


def legend_text(scale: Scale, colour: bool) -> str:
    """What the blocks mean."""
    ends = f"{number(scale.low, 2)} … {number(scale.high, 2)}"
    if scale.kind == "sequential":
        return f"{BLOCKS.strip()}  {ends}"
    return f"{BELOW.strip()[::-1]} {BLOCKS.strip()}  {ends}"


def text_map(
    values: Array, rows: Sequence[str], columns: Sequence[str], scale: Scale, width: int, colour: bool, title: str
) -> str:
    """A matrix: with its numbers where they have room, else as blocks, else pooled to what has room."""
    margin = min(max(map(cells, map(str, rows)), default=0), max(width // 4, 4))
    room = max(width - margin - 2, 8)
    n_rows, n_columns = values.shape
    if n_columns * 7 <= room and n_rows <= MOST_ROWS:
        lines = [" " * (margin + 2) + " ".join(padded_text(name, 6, right=True) for name in columns)]
        for name, line in zip(rows, round_values(values).tolist(), strict=True):
            shown = [padded_text(short(value), 6, right=True) for value in line]
            if colour:
                shown = [_inked_number(text, value, scale) for text, value in zip(shown, line, strict=True)]
            lines.append(padded_text(name, margin, right=True) + "  " + " ".join(shown))
        return "\n".join([visible_text(title), *(line.rstrip() for line in lines)])
    small = max_pool(max_pool(values, MOST_ROWS) if n_rows > MOST_ROWS else values, max(room, MOST_ROWS))
    if small.shape[1] > room:
        small = max_pool(small, room)
    step_r, step_c = -(-n_rows // small.shape[0]), -(-n_columns // small.shape[1])
    wide = min(max(room // small.shape[1], 1), 6)
    lines = []
    if step_c == 1 and wide >= 3:
        lines.append(" " * (margin + 2) + "".join(padded_text(name, wide - 1) + " " for name in columns))
    for r, line in enumerate(small.tolist()):
        drawn = "".join(shaded_block(value, scale, wide - (wide > 2), colour) + " " * (wide > 2) for value in line)
        lines.append(padded_text(rows[r * step_r], margin, right=True) + "  " + drawn)
    pools = f"; each block is the strongest of {step_r} × {step_c}" if step_r * step_c > 1 else ""
    return "\n".join([visible_text(title), *(line.rstrip() for line in lines), legend_text(scale, colour) + pools])


def _inked_number(text: str, value: float, scale: Scale) -> str:
    if not np.isfinite(value):
        return text
    found = level(value, scale)
    return ansi_coloured(text, (COLOURS if found >= 0 else WARM)[abs(found)])
