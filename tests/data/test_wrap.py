"""Long lines, broken as printed books break them."""

import re
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cutaway.data.text_files import WIDTHS, read_documents, wrapped_lines

Lines = st.text(alphabet="ab  \n", max_size=400)


@given(Lines, st.integers(5, 20))
def test_breaking_changes_spaces_alone(text: str, width: int) -> None:
    broken = wrapped_lines(text, width)
    assert len(broken) == len(text)
    assert all(a == b or (a, b) == (" ", "\n") for a, b in zip(text, broken, strict=True))


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=9), min_size=1, max_size=60), st.integers(9, 20))
def test_lines_are_as_long_as_they_may_be_and_no_longer(words: list[str], width: int) -> None:
    lines = wrapped_lines(" ".join(words), width).split("\n")
    assert all(len(line) <= width for line in lines)
    for line, after in pairwise(lines):
        assert len(line) + 1 + len(after.split(" ")[0]) > width


def test_a_share_of_the_documents_is_broken_always_the_same(tmp_path: Path) -> None:
    paragraph = " ".join(["word"] * 60)
    path = tmp_path / "books.txt"
    path.write_text("\f".join(f"{paragraph}\n\n{paragraph}\n" for _ in range(200)))
    texts = [piece.text for piece in read_documents([path], "form_feed", wrap=0.5)]
    widths = [max(map(len, text.split("\n"))) for text in texts]
    broken = [width for width in widths if width < len(paragraph)]
    assert 70 < len(broken) < 130
    assert len(set(broken)) == 3
    assert set(broken) <= set(range(WIDTHS[0] - 4, WIDTHS[-1] + 1))
    assert all(re.sub(r"(?<!\n)\n(?!\n)", " ", text).split() == f"{paragraph} {paragraph}".split() for text in texts)
    assert texts == [piece.text for piece in read_documents([path], "form_feed", wrap=0.5)]
    assert {piece.text for piece in read_documents([path], "form_feed")} == {f"{paragraph}\n\n{paragraph}\n"}


def test_books_are_printed_in_lines_of_64_to_76_characters() -> None:
    assert list(WIDTHS) == list(range(64, 77))
