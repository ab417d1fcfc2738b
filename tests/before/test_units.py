"""Text files as ids: nothing is lost where nothing may be, ends stand where texts end, and what is no text is named."""

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from helpers.bert_tokenizer import bert_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from cutaway.before.units import Units, read_ids, units_of
from cutaway.errors import CheckpointError, InputError

TEXT = "The dog barks.\n\nA man’s dog — «ran»!\n"
LETTERS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n"), min_size=1, max_size=40)
LINES = st.lists(LETTERS.filter(lambda text: not text.isspace()), min_size=1, max_size=4)


@given(LINES, st.sampled_from(["characters", "bytes"]))
def test_characters_and_bytes_are_the_whole_text(texts, unit):
    cut = units_of(unit)
    with TemporaryDirectory() as name:
        files = [Path(name) / f"{i}.txt" for i in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_bytes(text.encode())
        found = read_ids(cut, files)
        again = read_ids(cut, files, new=False)
    read = [text.removeprefix("\ufeff") for text in texts]  # a mark of the byte order is none of the text
    assert cut.join(found.ids.tolist()) == "".join(read)
    assert np.array_equal(again.ids, found.ids)
    ends = np.flatnonzero(found.ids == cut.end)
    assert len(ends) == found.texts == len(texts)
    assert ends[-1] == len(found.ids) - 1
    assert found.n_bytes == len("".join(read).encode())
    assert found.unknown(cut) == 0


def test_words_are_small_and_bare(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    cut = units_of("words")
    found = read_ids(cut, [tmp_path / "a.txt"], split="blank_line")
    words = [cut.names[i] for i in found.ids]
    assert words == ["the", "dog", "barks", "<eos>", "a", "man’s", "dog", "ran", "<eos>"]
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"the cat ran <unk>"))
    other = read_ids(cut, [tmp_path / "b.txt.gz"], new=False)
    assert [cut.names[i] for i in other.ids] == ["the", "<unk>", "ran", "<unk>", "<eos>"]
    assert other.unknown(cut) == 0.4
    assert not other.whole


def test_what_is_unknown_is_named_once(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TEXT)
    for unit, text, strange in (("words", "a cat, the dog, a CAT", ["cat"]), ("characters", "dog zz", ["z"])):
        cut = units_of(unit)
        read_ids(cut, [tmp_path / "a.txt"])
        assert cut.unknown_in(text) == strange
    assert units_of("bytes").unknown_in("zz") == units_of("books").unknown_in("zz") == []
    tokenizer = bert_tokenizer(["[UNK]", "dog", "##s"], AddedToken("[UNK]"))
    monkeypatch.setattr("cutaway.before.units.load_tokenizer", lambda name: tokenizer)
    assert units_of("any").unknown_in("dogs cat dog cat") == ["cat"]


def test_tokens_are_those_of_a_model(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    cut = units_of("books")
    found = read_ids(cut, [tmp_path / "a.txt"])
    assert cut.join(found.ids.tolist()) == TEXT
    assert found.ids[-1] == cut.end
    assert len(cut.names) > found.ids.max()
    with pytest.raises(InputError, match="unit='char' is neither words, characters nor bytes, nor a model"):
        units_of("char")


@pytest.mark.parametrize("unit", ["words", "characters", "bytes", "books"])
def test_texts_that_are_cut_together_are_cut_as_each_alone(tmp_path, monkeypatch, unit):
    monkeypatch.setattr("cutaway.data.corpus.MOST_TEXTS", 2)
    lines = ["The dog barks.", "A man’s dog", "«ran»!", "The dog", "barks barks."]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    cut, alone = units_of(unit), units_of(unit)
    found = read_ids(cut, [tmp_path / "a.txt"], split="line")
    expected = [id for line in lines for id in (*alone.ids(line, True).tolist(), alone.end)]
    assert found.ids.tolist() == expected
    assert (cut.names, found.texts) == (alone.names, 5)


@pytest.mark.parametrize("unit", ["words", "characters", "bytes", "books"])
def test_a_cut_is_made_again_from_what_was_saved(tmp_path, unit):
    (tmp_path / "a.txt").write_text(TEXT)
    cut = units_of(unit)
    found = read_ids(cut, [tmp_path / "a.txt"])
    again: Units = units_of(**cut.to_dict())
    assert (again.unit, again.names, again.end, again.unknown) == (cut.unit, cut.names, cut.end, cut.unknown)
    assert np.array_equal(read_ids(again, [tmp_path / "a.txt"], new=False).ids, found.ids)


@pytest.mark.parametrize("names", [["<eos>", "a"], ["<unk>", "a"], ["<unk>", "<eos>", "a", "a"]])
def test_names_that_tell_nothing_apart_are_refused(names):
    with pytest.raises(CheckpointError, match="words are not all different, or lack"):
        units_of("words", names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "only white space"),
        (b"., !\n", "no words"),
        (b"\x00" * 100, "is binary: it contains the character 0"),
        (b"a text\nand then \x00 that", "is binary: it contains the character 0"),
        (b"\x7fELF\x02\x01\xd0\xff", "not UTF-8"),
        (b"PK\x03\x04 and so on", "is a zip archive"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path, content, said):
    (tmp_path / "good.txt").write_text(TEXT)
    (tmp_path / "odd.txt").write_bytes(content)
    with pytest.raises(InputError, match=rf"odd.txt.*{said}"):
        read_ids(units_of("words"), [tmp_path / "odd.txt"])
    if said != "no words":
        with pytest.raises(InputError, match=rf"odd.txt.*{said}"):
            read_ids(units_of("words"), [tmp_path / "good.txt", tmp_path / "odd.txt"])


def test_progress_is_told_over_all_files(tmp_path):
    told: list[tuple[int, int]] = []
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text(TEXT)
    read_ids(units_of("words"), files, progress=lambda *each: told.append(each))
    size = len(TEXT.encode())
    assert told == [(size, 2 * size), (2 * size, 2 * size)]


def test_only_tokens_that_spell_a_text_are_all_of_it(tmp_path):
    """Those of a BERT have neither its capitals nor its spaces, so they have no bits per byte."""
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "marked.txt").write_text(TEXT + "<eos> ran")
    said = {
        unit: [read_ids(units_of(unit), [tmp_path / name], new=False).whole for name in ("a.txt", "marked.txt")]
        for unit in ("bytes", "books", "cloze", "words")
    }
    assert said == {"bytes": [True, True], "books": [True, False], "cloze": [False, False], "words": [False, False]}
    letters = units_of("characters")
    read_ids(letters, [tmp_path / "a.txt"])
    assert read_ids(letters, [tmp_path / "a.txt"], new=False).whole
    assert not read_ids(letters, [tmp_path / "marked.txt"], new=False).whole  # «<» is unknown
