"""A heat map says the same with colours and without, and takes whatever text a token is."""

import io

import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from torch import Tensor

from cutaway.inside.draw import BLOCKS, COLOURS, heat_map


def printed(picture: Text, *, colour: bool) -> str:
    out = io.StringIO()
    kind = "truecolor" if colour else None
    Console(file=out, width=200, force_terminal=colour, color_system=kind, no_color=not colour).print(picture)
    return out.getvalue()


def cells(line: str, margin: int, n: int, cell: int = 3) -> list[str]:
    """The blocks of one row of the picture; the spaces at its end may be gone."""
    blocks = line[margin + 2 :].ljust(n * cell)
    return [blocks[i * cell : (i + 1) * cell - 1] for i in range(n)]


def some_pattern(n_query: int, n_key: int) -> Tensor:
    return torch.rand(n_query, n_key).softmax(dim=-1)


@given(n_query=st.integers(1, 5), n_key=st.integers(1, 6), cell=st.integers(2, 6))
def test_a_row_for_each_query_and_a_column_for_each_key(n_query: int, n_key: int, cell: int) -> None:
    rows, columns = [f"query{i}" for i in range(n_query)], [f"key{i}" for i in range(n_key)]
    lines = heat_map(torch.ones(n_query, n_key), rows=rows, columns=columns, cell=cell).plain.split("\n")
    assert len(lines) == 1 + n_query
    assert cells(lines[0], 6, n_key, cell) == [f"{column[: cell - 1]:<{cell - 1}}" for column in columns]
    for name, line in zip(rows, lines[1:], strict=True):
        assert line.startswith(f"{name}  ")
        assert cells(line, 6, n_key, cell) == ["█" * (cell - 1)] * n_key


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


def test_without_colours_it_says_the_same() -> None:
    picture = heat_map(some_pattern(3, 3), rows=["the", "cat", "sat"], columns=["the", "cat", "sat"])
    coloured, plain = printed(picture, colour=True), printed(picture, colour=False)
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert Text.from_ansi(coloured).plain.rstrip() == plain.rstrip() == picture.plain.rstrip()


def test_long_labels_do_not_shift_the_columns() -> None:
    long = "internationalisation"
    lines = heat_map(torch.eye(2), rows=[long, "a"], columns=[long, "b"]).plain.split("\n")
    assert lines[0].rstrip() == " " * (len(long) + 2) + "in b"
    assert lines[1].startswith(f"{long}  ██")
    assert lines[2].startswith(" " * (len(long) - 1) + "a  ")
    assert cells(lines[2], len(long), 2) == ["  ", "██"]


def test_tokens_that_look_like_markup_are_plain_text() -> None:
    names = ["<script>", "[bold]", "[/red]", "</s>", "\\["]
    picture = heat_map(some_pattern(5, 5), rows=names, columns=names, cell=9)
    lines = printed(picture, colour=False).split("\n")
    for name, line in zip(names, lines[1:], strict=False):
        assert line.startswith(f"{name:>8}  ")
        assert name in lines[0]
