"""A heat map says the same with colours and without, and takes whatever text a token is."""

import io
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.text import Text
from torch import Tensor

from cutaway.pictures.bars import BLOCKS, COLOURS, PROBABILITY_COLOURS, fits, half_blocks, heat_map, probability_colour


def printed(picture: Text, *, colour: bool) -> str:
    out = io.StringIO()
    kind = "truecolor" if colour else None
    Console(file=out, width=200, force_terminal=colour, color_system=kind, no_color=not colour).print(picture)
    return out.getvalue()


def cells(line: str, margin: int, n: int, wide: int = 2) -> list[str]:
    """The blocks of one row of the picture; the spaces at its end may be gone."""
    blocks = line[margin + 2 :].ljust(n * (wide + 1))
    return [blocks[i * (wide + 1) : (i + 1) * (wide + 1) - 1] for i in range(n)]


def some_pattern(n_query: int, n_key: int) -> Tensor:
    return torch.rand(n_query, n_key).softmax(dim=-1)


@given(n_query=st.integers(1, 5), n_key=st.integers(1, 6), wide=st.integers(1, 6))
def test_a_row_for_each_query_and_a_column_for_each_key(n_query: int, n_key: int, wide: int) -> None:
    rows, columns = [f"query{i}" for i in range(n_query)], [f"key{i}" for i in range(n_key)]
    ones, width = torch.ones(n_query, n_key), 8 + n_key * (wide + 1)
    lines = heat_map(ones, rows=rows, columns=columns, width=width).plain.split("\n")
    assert len(lines) == 1 + n_query
    wide = min(wide, 4)  # no name is longer
    assert cells(lines[0], 6, n_key, wide) == [column[:wide] for column in columns]
    for name, line in zip(rows, lines[1:], strict=True):
        assert line.startswith(f"{name}  ")
        assert cells(line, 6, n_key, wide) == ["█" * wide] * n_key


NAMES = st.lists(st.text("aé数", min_size=1, max_size=12), min_size=1, max_size=8)


@given(columns=NAMES, rows=NAMES, width=st.integers(60, 120))
def test_a_column_is_as_wide_as_its_name_and_names_are_cut_only_where_they_must(
    columns: list[str], rows: list[str], width: int
) -> None:
    ones = torch.ones(len(rows), len(columns))
    drawn = heat_map(ones, rows=rows, columns=columns, width=width).plain.split("\n")
    assert all(cell_len(line.rstrip()) <= width for line in drawn)
    whole = heat_map(ones, rows=rows, columns=columns).plain.split("\n")
    assert whole[0].split() == columns
    assert (drawn == whole) == fits(rows, columns, width) == (max(cell_len(line.rstrip()) for line in whole) <= width)
    for name, block in zip(columns, whole[1].split()[-len(columns) :], strict=True):
        assert block == "█" * max(2, cell_len(name))


def test_the_larger_the_weight_the_darker_the_block() -> None:
    weights = torch.linspace(0, 1, 11)
    picture = heat_map(weights[None], rows=["q"], columns=list("abcdefghijk"))
    levels = [BLOCKS.index(block[0]) for block in cells(picture.plain.split("\n")[1], 1, 11)]
    assert levels == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    # the colours follow the blocks, so that one may be read without the other
    styles = [str(span.style) for span in picture.spans if str(span.style) in COLOURS]
    assert styles == [COLOURS[level] for level in levels]


def test_each_weight_stands_in_its_own_row_and_column() -> None:
    pattern = torch.zeros(3, 4)
    pattern[1, 2] = 1.0
    lines = heat_map(pattern, rows=["a", "b", "c"], columns=["w", "x", "y", "z"]).plain.split("\n")
    dark = [(q, k) for q in range(3) for k in range(4) if "█" in cells(lines[q + 1], 1, 4)[k]]
    assert dark == [(1, 2)]


def test_what_is_not_finite_is_no_block() -> None:
    weights = torch.tensor([[float("nan"), 1.0, float("-inf")]])
    line = heat_map(weights, rows=["q"], columns=["a", "b", "c"]).plain.split("\n")[1]
    assert cells(line, 1, 3) == ["––", "██", "––"]


def test_without_colours_it_says_the_same() -> None:
    picture = heat_map(some_pattern(3, 3), rows=["the", "cat", "sat"], columns=["the", "cat", "sat"])
    coloured, plain = printed(picture, colour=True), printed(picture, colour=False)
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert Text.from_ansi(coloured).plain.rstrip() == plain.rstrip() == picture.plain.rstrip()


def test_long_labels_do_not_shift_the_columns() -> None:
    long = "internationalisation"
    lines = heat_map(torch.eye(2), rows=[long, "a"], columns=[long, "b"], width=len(long) + 7).plain.split("\n")
    assert lines[0].rstrip() == " " * (len(long) + 2) + "in b"
    assert lines[1].startswith(f"{long}  ██")
    assert lines[2].startswith(" " * (len(long) - 1) + "a  ")
    assert cells(lines[2], len(long), 2) == ["  ", "██"]


def test_tokens_that_look_like_markup_are_plain_text() -> None:
    names = ["<script>", "[bold]", "[/red]", "</s>", "\\["]
    picture = heat_map(some_pattern(5, 5), rows=names, columns=names)
    lines = printed(picture, colour=False).split("\n")
    for name, line in zip(names, lines[1:], strict=False):
        assert line.startswith(f"{name:>8}  ")
        assert name in lines[0]


@pytest.mark.parametrize("colour", sorted({*COLOURS, *PROBABILITY_COLOURS.values()}))
def test_a_colour_stands_out_on_black_and_on_white(colour: str) -> None:
    """Contrast as the Web's guidelines (WCAG 2) measure it; large marks need 3."""
    shares = [share / 255 for share in Color.parse(colour).triplet or ()]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    brightness = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert (brightness + 0.05) / 0.05 > 3.0  # black
    assert 1.05 / (brightness + 0.05) > 3.0  # white


def test_the_surer_the_bluer() -> None:
    chances = [0.0, 0.019, 0.05, 0.2, 0.5, 0.6, 1.0]
    colours = list(PROBABILITY_COLOURS.values())
    assert [colours.index(probability_colour(p)) for p in chances] == [0, 0, 1, 2, 3, 4, 4]


PICTURES = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(st.integers(0, 255), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda pixels: np.array(pixels, np.uint8).reshape(shape)
    )
)


@given(PICTURES)
def test_a_picture_shows_its_bright_pixels_without_colours_and_its_shades_with_them(pixels: np.ndarray) -> None:
    drawn = half_blocks(pixels)
    height, width = pixels.shape
    even = np.vstack([pixels, np.zeros((height % 2, width), np.uint8)]).astype(int)
    lines = drawn.plain.split("\n")
    seen = [[" ▄▀█".index(block) for block in line] for line in lines]
    assert (np.array(seen) // 2 == (even[::2] > 127)).all()
    assert (np.array(seen) % 2 == (even[1::2] > 127)).all()
    spans = iter(drawn.spans)
    for y, line in enumerate(lines):
        for x, block in enumerate(line):
            ink, paper = re.findall(r"rgb\((\d+)", str(next(spans).style))
            upper, lower = (int(paper), int(ink)) if block == "▄" else (int(ink), int(paper))
            mixed = block in "▄▀"
            assert [upper, lower] == list(
                even[2 * y : 2 * y + 2, x] if mixed else 2 * [even[2 * y : 2 * y + 2, x].sum() // 2]
            )
