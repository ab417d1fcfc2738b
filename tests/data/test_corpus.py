"""Corpora: the tokens of the texts, made once."""

import subprocess
import sys

import numpy as np
import pytest
from helpers.data_samples import REFUSED, bpe, bytes_only, wordpiece, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.data import corpus as module
from cutaway.data import text_files
from cutaway.data.corpus import tokenised_documents
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\f\ufeff"), min_size=1, max_size=200)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_folder
@given(documents=st.lists(TEXT, min_size=1, max_size=8), small=st.booleans())
def test_the_tokens_are_those_of_the_documents(tmp_path_factory, documents, small):
    folder = tmp_path_factory.mktemp("corpus")
    path = write(folder / "text.xz", "\f".join(documents) + "\f.")
    tokenizer = bpe()
    with pytest.MonkeyPatch.context() as patch:
        if small:
            for room, name, size in ((text_files, "PIECE", 16), (text_files, "WINDOW", 8), (module, "BATCH", 64)):
                patch.setattr(room, name, size)
        corpus = tokenised_documents([path], tokenizer, split="form_feed", end_id=0, cache=folder / "cache")
    full = [document for document in [*documents, "."] if document.strip()]
    assert [corpus[i].tolist() for i in range(len(corpus))] == [
        [*tokenizer.encode(document, special=False), 0] for document in full
    ]
    assert corpus.n_bytes == len("".join(full).encode())
    assert corpus.lengths.tolist() == [len(corpus[i]) for i in range(len(corpus))]
    assert corpus.starts[-1] == len(corpus.ids)


@same_folder
@given(
    documents=st.lists(TEXT | st.text("ab \n", min_size=50, max_size=200), min_size=1, max_size=8),
    split=st.sampled_from(["file", "line", "form_feed", "blank_line"]),
    share=st.floats(0.01, 0.99),
    small=st.booleans(),
)
def test_two_parts_make_the_whole(tmp_path_factory, documents, split, share, small):
    path = write(tmp_path_factory.mktemp("corpus") / "text", "\f".join(documents) + "\f.\n\n.")
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(text_files, "PIECE", 16)
            patch.setattr(text_files, "WINDOW", 8)
        pieces = list(text_files.read_documents([path], split))
        size = module.size_of([path], split, cache=path.parent / "cache")
    cut = int(share * size)
    first, last = (list(module.part_of(pieces, split, *part)) for part in ((0, cut), (cut, size)))

    def ends(pieces):
        return [sum(len(piece.text) for piece in pieces[: i + 1]) for i, piece in enumerate(pieces) if piece.ends]

    if split == "line":
        assert first + last == pieces
        assert sum(piece.ends for piece in first) == cut
    else:
        assert "".join(piece.text for piece in first + last) == "".join(piece.text for piece in pieces)
        assert sum(len(piece.text) for piece in first) == cut
        assert not first or first[-1].ends
        between = [i for i in ends(pieces) if i != cut]  # where one is cut in two, it ends once more
        assert [i for i in ends(first) if i != cut] + [cut + i for i in ends(last) if i] == between


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=20), longest=st.integers(1, 30))
def test_sequences_that_are_too_long_become_several(lengths, longest):
    starts = np.concatenate([[0], np.cumsum(lengths)])
    whole = module.Corpus(np.arange(starts[-1]), starts, 7, "print")
    parts = whole.cut(longest)
    assert parts.ids is whole.ids
    assert set(starts.tolist()) <= set(parts.starts.tolist())
    assert parts.lengths.max() <= longest
    document = np.searchsorted(starts, parts.starts[:-1], side="right")
    for i, n in enumerate(lengths, 1):
        its = parts.lengths[document == i]
        assert its.sum() == n
        assert len(its) == -(-n // longest)
        assert its.max() - its.min() <= 1


def test_the_second_time_no_text_is_cut(tmp_path, monkeypatch):
    path = write(tmp_path / "text", "one\ntwo\nthree\n")

    def make():
        return tokenised_documents([path], bpe(), split="line", end_id=None, cache=tmp_path / "cache")

    first = make()
    monkeypatch.setattr(module, "encoded", lambda *_: pytest.fail("a text was cut again"))
    second = make()
    assert first.ids.tolist() == second.ids.tolist()
    assert first.starts.tolist() == second.starts.tolist()
    assert (first.n_bytes, first.fingerprint) == (second.n_bytes, second.fingerprint)


def test_whatever_changes_the_tokens_changes_the_fingerprint(tmp_path):
    path, other = write(tmp_path / "text", "one\ntwo\n"), write(tmp_path / "other", "one\ntwp\n")

    def print_of(path, tokenizer, **options):
        options = {"split": "line", "end_id": None, "cache": tmp_path / "cache", **options}
        return tokenised_documents([path], tokenizer, **options).fingerprint

    prints = [
        print_of(path, bpe()),
        print_of(other, bpe()),
        print_of(path, bpe(300)),
        print_of(path, bpe(), split="file"),
        print_of(path, bpe(), end_id=0),
    ]
    assert len(set(prints)) == len(prints)
    assert print_of(path, bpe()) == prints[0]


def test_ids_take_two_bytes_while_they_can(tmp_path):
    path = write(tmp_path / "text", "some text")
    corpus = tokenised_documents([path], bpe(), end_id=None, cache=tmp_path / "cache")
    assert corpus.ids.dtype == np.uint16
    large = bytes_only()
    large.backend.add_tokens([f"<{i}>" for i in range(66_000)])
    path = write(tmp_path / "text", "some<65999>text")
    large = Tokenizer(large.backend)
    corpus = tokenised_documents([path], large, end_id=None, cache=tmp_path / "cache")
    assert corpus.ids.dtype == np.uint32
    assert corpus.ids.max() == large.vocab_size - 1


def test_sequences_are_found_from_both_ends(tmp_path):
    path = write(tmp_path / "text", "one\ntwo\nthree\n")
    corpus = tokenised_documents([path], bytes_only(), split="line", end_id=None, cache=tmp_path / "cache")
    assert len(corpus) == len(list(corpus)) == 3
    assert corpus[-1].tolist() == corpus[2].tolist() == corpus[np.int64(2)].tolist()
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            corpus[wrong]


def test_documents_without_a_token_are_left_out(tmp_path):
    path = write(tmp_path / "text", "the cat\n\u200b\nthe cat\n")  # BERT drops what cannot be seen
    corpus = tokenised_documents([path], wordpiece(), split="line", end_id=None, cache=tmp_path / "cache")
    assert corpus.lengths.tolist() == [2, 2]
    path = write(tmp_path / "text", "\u200b")
    with pytest.raises(InputError, match="there is no text for which this tokenizer has tokens"):
        tokenised_documents([path], wordpiece(), end_id=None, cache=tmp_path / "cache")


def test_what_cannot_be_is_refused(tmp_path):
    path = write(tmp_path / "text", "some text")
    with pytest.raises(InputError, match=r"end_id=400 is outside the vocabulary 0 … 3"):
        tokenised_documents([path], bpe(), end_id=400, cache=tmp_path / "cache")
    with pytest.raises(InputError, match="no files"):
        tokenised_documents([], bpe(), end_id=None, cache=tmp_path / "cache")
    with pytest.raises(REFUSED, match="page"):
        tokenised_documents([path], bpe(), split="page", end_id=None, cache=tmp_path / "cache")


MEASURE = """
import sys
from pathlib import Path
from cutaway.data.corpus import tokenised_documents
from cutaway.tokens import Tokenizer
folder = Path(sys.argv[1])
tokenizer = Tokenizer.load(folder)
def peak(name):
    tokenised_documents([folder / name], tokenizer, end_id=0, cache=folder / "cache")
    # not ru_maxrss, in which the size of the process that started this one counts
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak("small"), peak("large"))
"""


def test_memory_does_not_grow_with_the_text(tmp_path):
    words = np.random.default_rng(0).integers(97, 123, (500_000, 8), np.uint8)
    words[:, 0] = 32
    words[::10, 0] = 10
    for name, times in (("small", 1), ("large", 5)):
        with (tmp_path / name).open("wb") as file:
            for _ in range(times):
                file.write(words.tobytes())
    bytes_only().save(tmp_path)
    ended = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    small, large = map(int, ended.stdout.split())
    assert small < 600, "megabytes"
    assert large < small + 150, "twenty million tokens are more"


def test_every_way_of_reading_is_an_entry_of_its_own(tmp_path):
    """Asked again in the same cache, in any order, each gives what it gives alone."""
    text = "\f".join(" ".join([f"word{n}"] * 40) + "\n" for n in range(6))
    path = write(tmp_path / "text", text)
    ways = [
        {},
        {"wrap": 1.0},
        {"wrap": 0.5},
        {"part": (0, 300)},
        {"part": (300, 600)},
        {"left_out": (1,)},
        {"left_out": (1, 2)},
        {"end_id": None},
        {"split": "line"},
        {"split": "file"},
        {"wrap": 1.0, "left_out": (1,)},
    ]

    def read(way, cache):
        options = {"split": "form_feed", "end_id": 0, **way}
        corpus = tokenised_documents([path], bpe(), cache=cache, **options)
        return corpus.ids.tolist(), corpus.starts.tolist(), corpus.fingerprint

    alone = [read(way, tmp_path / f"cache{n}") for n, way in enumerate(ways)]
    together = [read(way, tmp_path / "cache") for way in ways]
    assert together == alone
    assert len({print for *_, print in alone}) == len(ways)
    assert len({tuple(ids) for ids, *_ in alone}) >= len(ways) - 1


def test_the_size_of_a_text_is_remembered_for_each_way_of_parting_it(tmp_path):
    path = write(tmp_path / "text", "one\ntwo\n\fthree\n")
    assert [module.size_of([path], split, cache=tmp_path / "cache") for split in ("line", "form_feed", "line")] == [
        3, len("one\ntwo\n") + len("three\n"), 3,
    ]  # fmt: skip
