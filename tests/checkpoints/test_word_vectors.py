"""Word vectors from every published form: the same words, the same numbers; damage is named."""

import gzip
import struct

import numpy as np
import pytest

from cutaway.checkpoints.word_vectors import is_word_vectors, read_word_vectors
from cutaway.errors import CheckpointError

WORDS = ["the", "of", "Köln", "b"]
NUMBERS = np.array([[0.5, -1.25, 3], [0, 2, 1e-3], [1, 1, 1], [7, -8, 9]], dtype=np.float32)


def text(head: bool) -> bytes:
    lines = ["4 3"] * head + [f"{w} {' '.join(map(str, row))}" for w, row in zip(WORDS, NUMBERS, strict=True)]
    return ("\n".join(lines) + "\n").encode()


def binary(newline: bytes) -> bytes:
    return b"4 3\n" + b"".join(
        word.encode() + b" " + struct.pack("<3f", *row) + newline for word, row in zip(WORDS, NUMBERS, strict=True)
    )


FORMS = {
    "glove.txt": text(False),
    "glove.txt.gz": gzip.compress(text(False)),
    "words.vec": text(True),
    "words.bin": binary(b""),
    "words.bin.gz": gzip.compress(binary(b"\n")),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FORMS[name])
    assert is_word_vectors(path)
    words, vectors = read_word_vectors(path)
    assert words == WORDS
    assert np.array_equal(vectors, NUMBERS)
    words, vectors = read_word_vectors(path, 2)
    assert (words, vectors.shape) == (WORDS[:2], (2, 3))


@pytest.mark.parametrize("kind", ["parquet", "txt"])
def test_an_array_and_its_words(tmp_path, kind):
    np.save(tmp_path / "glove_vectors.npy", NUMBERS)
    (tmp_path / "notes.txt").write_text("nothing")
    if kind == "txt":
        (tmp_path / "glove_words.txt").write_text("\n".join(WORDS) + "\n")
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"index": WORDS}), tmp_path / "glove_words.parquet")
    for path in (tmp_path, tmp_path / "glove_vectors.npy"):
        assert is_word_vectors(path)
        words, vectors = read_word_vectors(path)
        assert words == WORDS
        assert np.array_equal(vectors, NUMBERS)


def test_words_with_spaces_keep_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("the 1 2\n. . . 3 4\n")
    assert read_word_vectors(path)[0] == ["the", ". . ."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"the 1 2 3\nof 1 2\n", "word 2: 2 numbers"),
        (b"the 1 2 3\nof 1 x 3\n", "vector 2: not a word and its numbers"),
        (b"the 1 2 nan\n", "the vector of 'the' has a number that is none"),
        (b"9 3\nthe 1 2 3\n", "says it has 9 words, and ends after 1"),
        (binary(b"")[:-3], "cut short"),
        (b"999999999 999999999\n", "are too many"),
        (gzip.compress(text(False) * 999)[:-20], "cut short"),
        (b"Call me Ishmael.\n", "its first line is neither"),
    ],
    ids=range(8),
)
def test_damage_is_named(tmp_path, content, said):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_word_vectors(path)


def test_arrays_that_cannot_be(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, NUMBERS)
    with pytest.raises(CheckpointError, match="its words are wanted beside it"):
        read_word_vectors(path)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.raises(CheckpointError, match=r"has 4 vectors, and .* has 2 words"):
        read_word_vectors(path)
    (tmp_path / "a.txt").write_bytes("café\n".encode("latin-1") * len(NUMBERS))
    with pytest.raises(CheckpointError, match=r"a\.txt has the words of a\.npy and is not UTF-8"):
        read_word_vectors(path)
    np.save(path, NUMBERS[0])
    with pytest.raises(CheckpointError, match="expected word × number"):
        read_word_vectors(path)
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CheckpointError, match="arrays of numbers are read"):
        read_word_vectors(path)
    assert not is_word_vectors(tmp_path / "nothing")
    (tmp_path / "book.txt").write_text("Call me Ishmael.\n")
    assert not is_word_vectors(tmp_path / "book.txt")


@pytest.mark.parametrize("form", ["text", "text with a head", "binary"])
def test_a_word_that_is_no_utf_8_does_not_end_the_reading(tmp_path, form):
    """word2vec cuts long words in the middle of a character; the published files have some."""
    path, head = tmp_path / "a.vec", b"" if form == "text" else b"3 2\n"
    words = [b"the", "caf\u00e9".encode()[:-1], b"of"]
    numbers = np.array([[1, 2], [3, 4], [5, 6]], dtype="<f4")
    between, ending = (b" ", b"\n")
    rows = [row.tobytes() if form == "binary" else b"%g %g" % (*row,) for row in numbers]
    path.write_bytes(head + b"".join(word + between + row + ending for word, row in zip(words, rows, strict=True)))
    found, vectors = read_word_vectors(path)
    assert found == ["the", "caf\ufffd", "of"]
    assert np.array_equal(vectors, numbers)
