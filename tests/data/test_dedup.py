"""Training documents that repeat the validation text are found however they are printed, and only they."""

from pathlib import Path

import pytest
from helpers.near_duplicates import book, printed_otherwise, written
from helpers.tokenizers_of_bytes import byte_level

from cutaway.data import dedup
from cutaway.data.corpus import tokenised_documents
from cutaway.data.dedup import find_repeats
from cutaway.data.text_files import TextPiece, without_documents


@pytest.fixture
def library(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    """Two files to learn from; the second book of the second is one of those that measure."""
    train = [
        written(tmp_path / "a.txt", book(0), book(1), " \n ", book(2)),
        written(tmp_path / "b.txt", book(3), printed_otherwise(book(10)), book(4)),
    ]
    return train, [written(tmp_path / "valid.txt", book(10), book(11))]


def test_another_edition_is_found_and_no_other_book(library: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    found = find_repeats(*library, "form_feed", cache=tmp_path / "cache")
    assert found.left_out == (4,)
    assert found.named == ("document 2 of b.txt (100% of it)",)
    assert found.seen == 0
    assert list(found.messages()) == [
        "1 training document repeats the validation text and was left out: document 2 of b.txt (100% of it)"
    ]
    assert find_repeats(*library, "form_feed", cache=tmp_path / "cache") == found  # out of the cache


@pytest.mark.parametrize("most", [200, 50])
def test_of_a_long_validation_text_some_runs_are_enough(library, tmp_path, monkeypatch, most) -> None:
    monkeypatch.setattr(dedup, "MOST_RUNS", most)
    assert find_repeats(*library, "form_feed", cache=tmp_path / "cache").left_out == (4,)


def test_what_is_left_out_is_not_there(library: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    train, _ = library
    for wrap in (0.0, 0.5):
        whole, less = (
            tokenised_documents(
                train, byte_level(), split="form_feed", end_id=None, wrap=wrap, left_out=out, cache=tmp_path
            )
            for out in ((), (1, 4))
        )
        assert [ids.tolist() for ids in less] == [ids.tolist() for i, ids in enumerate(whole) if i not in (1, 4)]
        assert less.fingerprint != whole.fingerprint


def test_a_document_in_pieces_is_left_out_whole() -> None:
    pieces = [
        TextPiece("a", False),
        TextPiece("b", True),
        TextPiece("c", False),
        TextPiece("d", True),
        TextPiece("e", True),
    ]
    assert [piece.text for piece in without_documents(iter(pieces), {1})] == ["a", "b", "e"]


def test_a_validation_text_inside_of_a_long_document_is_told(tmp_path: Path) -> None:
    train = [written(tmp_path / "a.txt", " ".join([*(book(i) for i in range(12)), printed_otherwise(book(20))]))]
    found = find_repeats(train, [written(tmp_path / "v.txt", book(20))], "form_feed", cache=tmp_path / "cache")
    assert found.left_out == ()
    assert found.seen > 0.9
    (said,) = found.messages()
    assert "of the validation text stands in the training text, too" in said


def test_where_all_would_be_left_out_nothing_is_and_it_is_said(tmp_path: Path) -> None:
    same = [written(tmp_path / "a.txt", book(1))]
    found = find_repeats(same, same, "form_feed", cache=tmp_path / "cache")
    assert (found.left_out, found.seen) == ((), 1.0)
    (said,) = found.messages()
    assert said.startswith("100% of the validation text")


def test_few_words_repeat_nothing(tmp_path: Path) -> None:
    lines = "\n".join(["Yes, he said.", "I do not know.", book(1, 40)] * 4)
    (tmp_path / "a.txt").write_text(lines)
    (tmp_path / "v.txt").write_text("I do not know.\nYes, he said.\n" + book(2, 40))
    found = find_repeats([tmp_path / "a.txt"], [tmp_path / "v.txt"], "line", cache=tmp_path / "cache")
    assert (found.left_out, found.seen) == ((), 0)


@pytest.mark.parametrize(("copied", "share"), [(11, 0.0), (12, 0.01), (56, 0.09), (57, 0.10)])
def test_a_tenth_of_a_document_in_runs_of_twelve_words(copied: int, share: float, tmp_path: Path) -> None:
    """507 words hold a hundred runs of twelve words that are looked up, one every five words."""
    own, other = ([f"{side}{i}" for i in range(507)] for side in "ab")
    texts = [own[:100] + other[:copied] + own[100 + copied :], own[::-1]]
    train = written(tmp_path / "a.txt", *map(" ".join, texts))
    found = find_repeats([train], [written(tmp_path / "v.txt", " ".join(other))], "form_feed", cache=tmp_path / "cache")
    if share < 0.1:
        assert found.left_out == ()
        assert found.seen == pytest.approx(5 * 100 * share / 496)  # runs of the validation text, one at each word
        assert bool(list(found.messages())) == (found.seen >= 0.01)
    else:
        assert found.left_out == (0,)
        assert found.named == ("document 1 of a.txt (10% of it)",)
        assert found.seen == 0.0
