"""A book, another edition of it, and files that hold them."""

import random
import textwrap
from pathlib import Path

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in ("l", "n", "r", "st", "tz", "ß", "é")]


def book(seed: int, n: int = 900) -> str:
    """A book of its own."""
    draw = random.Random(seed)
    return ". ".join(" ".join(draw.choices(WORDS, k=9)).capitalize() for _ in range(n // 9)) + "."


def printed_otherwise(text: str) -> str:
    """Another edition: wrapped, in capitals here and there, with other punctuation."""
    lines = textwrap.wrap(text.replace(". ", " -- "), 40)
    return "\n".join(line.upper() if i % 3 == 0 else line for i, line in enumerate(lines))


def written(path: Path, *books: str) -> Path:
    path.write_text("\f".join(books), encoding="utf-8")
    return path
