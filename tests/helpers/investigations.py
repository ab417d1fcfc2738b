"""The pages of docs/inside run, block after block, and show what their blocks print and draw.

    python tests/helpers/investigations.py docs/inside/1-one-sentence.md   writes what they print, and their pictures

A ```text block behind a ```python block is what that one prints. Words and whole numbers are compared exactly, numbers
with a point within 2 % or one unit of the last digit shown, so that another CPU passes; name a head
`decoder.3.attention.7`, or 3.7 is a number.
A picture is shown from pictures/; a block saves it under its name: `picture.save("lens.svg")`.
"""

import io
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.pictures import read_picture

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "inside").glob("[0-9]-*.md"))
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.M | re.S)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]*)\)")
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?!\.?\w)")
NEAR = 0.02


@dataclass(frozen=True)
class Block:
    """A block of Python, what stands behind it (its text, and where that is), and what it prints."""

    line: int
    end: int
    shown: str
    where: tuple[int, int] | None
    printed: str


def needs_smollm2(page: Path) -> bool:
    return "build/smollm2" in page.read_text()


def check(page: Path, folder: Path) -> int:
    """Runs the page in a folder and says where it shows something else than what happens. How much was compared."""
    blocks = run(page, folder)
    assert any(block.shown.strip() for block in blocks), f"{page.name} shows nothing of what it prints"
    for block in blocks:
        where = f"{page.name}, the block in line {block.line}"
        found = difference(block.shown, block.printed)
        assert not found, f"{where} prints\n{block.printed}\n{found}"
    for shown in pictures(page):
        made, kept = folder / shown.name, page.parent / shown
        assert shown.parent == Path("pictures"), f"{page.name} shows {shown}, which is not in pictures/"
        assert made.exists(), f"{page.name} shows {shown}, and no block saves {shown.name}"
        assert kept.exists(), f"{page.name} shows {shown}, which is not there"
        found = other_picture(kept, made)
        assert not found, f"{page.name}: {shown} is not what its block draws: {found}"
    return len(blocks) + len(pictures(page))


def update(page: Path) -> None:
    """Writes what the blocks print into the page, and what they draw into pictures/."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "build").symlink_to(ROOT / "build")
        text = page.read_text()
        for block in reversed(run(page, Path(name))):
            start, end = block.where or (block.end, block.end)
            shown = block.printed if block.where else f"\n\n```text\n{block.printed}```" if block.printed else ""
            text = text[:start] + shown + text[end:]
        page.write_text(text)
        (page.parent / "pictures").mkdir(exist_ok=True)
        for shown in pictures(page):
            (page.parent / shown).write_bytes((Path(name) / shown.name).read_bytes())


def run(page: Path, folder: Path) -> list[Block]:
    """All blocks, in one namespace and in this folder."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks: list[Block] = []
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text[: found.start()].count("\n") + 1
        if found[1] == "text":
            known = bool(blocks) and blocks[-1].where is None
            assert known, f"{page.name}, line {line}: whose output is this?"
            last = blocks.pop()
            blocks.append(Block(last.line, last.end, found[2], found.span(2), last.printed))
            continue
        said = io.StringIO()
        with redirect_stdout(said), chdir(folder):
            # Blank lines in front, so that a traceback shows the page's own line numbers.
            exec(compile("\n" * line + found[2], str(page), "exec"), names)
        blocks.append(Block(line, found.end(), "", None, said.getvalue()))
    return blocks


def pictures(page: Path) -> list[Path]:
    return [Path(name) for name in PICTURE.findall(page.read_text())]


def difference(shown: str, printed: str) -> str:
    """Where two texts part: a word, or a number that is too far away; empty if nowhere."""
    for expected, found in zip(_words(shown), _words(printed), strict=False):
        if expected != found:
            return f"where the page has «{expected}»: «{found}»"
    if len(_words(shown)) != len(_words(printed)):
        return f"where the page has {len(_words(shown))} words: {len(_words(printed))}"
    for expected, found in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        if not _near(expected, found):
            return f"where the page has {expected}: {found}"
    return ""


def _words(text: str) -> list[str]:
    return NUMBER.sub("0.0", text).split()


def _near(shown: str, printed: str) -> bool:
    """Within 2 %, or as near as the digits that are shown can tell: 0.01 of 0.97, 1e-7 of 3e-7."""
    one, other = (Decimal(number.replace("−", "-")) for number in (shown, printed))
    last = Decimal((0, (1,), int(one.as_tuple().exponent)))
    return abs(one - other) <= max(last, Decimal(NEAR) * max(abs(one), abs(other)))


def other_picture(kept: Path, made: Path) -> str:
    """What differs in the data of two pictures; numbers may by 2 % of the largest of their kind."""
    one, other = read_picture(kept), read_picture(made)
    if type(one) is not type(other):
        return f"a {one.kind}, not a {other.kind}"
    for field in fields(one):
        if not _same(getattr(one, field.name), getattr(other, field.name)):
            return field.name
    return ""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, str):
        return not difference(one, other)
    if isinstance(one, np.ndarray | float):
        one, other = np.asarray(one), np.asarray(other)
        largest = np.abs(one[np.isfinite(one)]).max(initial=0.0)
        return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=NEAR * largest, equal_nan=True)
    return one == other


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        update(Path(argument))
