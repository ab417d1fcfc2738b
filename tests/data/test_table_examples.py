"""Tables of examples: one sequence for each text, one label for each row, and the tags of words at their tokens."""

import json

import numpy as np
import pytest
import tokenizers
from helpers.data_samples import KINDS, REFUSED, bpe, wordpiece, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models

from cutaway.data import table_examples as module
from cutaway.data.labels import LabelColumn
from cutaway.data.table_examples import Cuts, tokenised_columns
from cutaway.data.table_files import read_parallel, read_table
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t\ufeff"), max_size=20)
WORD = st.text(st.sampled_from("abcat1.,'é漢"), min_size=1, max_size=8)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def table(folder, rows):
    return read_table(write(folder / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))


def sequences(corpus):
    return [sequence.tolist() for sequence in corpus]


@same_folder
@given(pairs=st.lists(st.tuples(FIELD, FIELD), max_size=20))
def test_columns_hold_the_tokens_of_full_rows(tmp_path_factory, pairs):
    folder, tokenizer = tmp_path_factory.mktemp("columns"), bpe()
    pairs = [("a", "b"), *pairs]
    for side, name in enumerate(("en", "de")):
        write(folder / name, "".join(pair[side] + "\n" for pair in pairs))
    rows = read_parallel(folder / "en", folder / "de")
    data = tokenised_columns(rows, ["source", "target"], tokenizer, cache=folder / "cache")
    full = [pair for pair in pairs if all(text and not text.isspace() for text in pair)]
    assert len(data) == len(full)
    assert data.skipped == len(pairs) - len(full)
    for side, name in enumerate(("source", "target")):
        assert sequences(data.columns[name]) == [tokenizer.encode(pair[side], special=False) for pair in full]
        assert data.columns[name].n_bytes == sum(len(pair[side].encode()) for pair in full)


# --- cut in several ways ----------------------------------------------------------------------------------------------


@same_folder
@given(pairs=st.lists(st.tuples(FIELD, FIELD), max_size=8), n=st.integers(1, 4), size=st.sampled_from([1, 3, 4096]))
def test_a_row_becomes_as_many_examples_as_cuts(tmp_path_factory, pairs, n, size):
    """Whose texts are the row's; rows without a text or a token are left out, as ever; batches change nothing."""
    folder, tokenizer = tmp_path_factory.mktemp("columns"), bpe()
    rows = table(folder, [{"a": a, "b": b} for a, b in [("the cat", "on the mat")] * 3 + pairs])
    plain = tokenised_columns(rows, ["a", "b"], tokenizer, cache=folder / "cache")
    cuts = Cuts(0.4, n, seed=1)
    data = tokenised_columns(rows, ["a", "b"], tokenizer, cuts=cuts, cache=folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cutaway.data.corpus.MOST_TEXTS", size)
        again = tokenised_columns(rows, ["a", "b"], tokenizer, cuts=cuts, cache=folder / "other")
    assert (len(data), data.n_rows, data.skipped) == (n * len(plain), plain.n_rows, plain.skipped)
    for name, column in data.columns.items():
        texts, wanted = (
            ["".join(map(tokenizer.token, ids)) for ids in sequences(c)] for c in (column, plain.columns[name])
        )
        assert texts == [text for text in wanted for _ in range(n)]
        assert sequences(column) == sequences(again.columns[name])
        assert column.n_bytes == n * plain.columns[name].n_bytes
    chosen = np.arange(0, plain.n_rows, 2)
    expected = [example * n + i for example in plain.examples_of(chosen).tolist() for i in range(n)]
    assert data.examples_of(chosen).tolist() == expected


def test_rows_without_a_token_have_no_cuts_and_move_no_other(tmp_path):
    rows = table(tmp_path, [{"text": text} for text in ("ab", "x", "aba", " ", "x", "ba")])
    model = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])  # has no token for x, nor one for what is unknown
    tokenizer = Tokenizer(tokenizers.Tokenizer(model))
    data = tokenised_columns(rows, ["text"], tokenizer, cuts=Cuts(0.5, 3, 0), cache=tmp_path / "cache")
    assert (len(data), data.n_rows, data.tokenless, data.skipped) == (9, 5, (1, 3), 3)
    assert data.examples_of(np.array([1, 2, 3])).tolist() == [3, 4, 5]
    assert data.examples_of(np.array([0, 4])).tolist() == [0, 1, 2, 6, 7, 8]


def test_columns_are_cut_independently(tmp_path):
    rows = table(tmp_path, [{"a": "the other cat sat", "b": "the other cat sat"}] * 20)
    data = tokenised_columns(rows, ["a", "b"], bpe(), cuts=Cuts(0.3, 8, 0), cache=tmp_path / "cache")
    same = [a == b for a, b in zip(*map(sequences, data.columns.values()), strict=True)]
    assert sum(same) < 0.3 * len(same)


def test_what_decides_the_cuts_decides_the_fingerprint(tmp_path):
    rows, cache = table(tmp_path, [{"a": "the other cat sat"}]), tmp_path / "cache"
    ways = (None, Cuts(0.1, 2, 0), Cuts(0.2, 2, 0), Cuts(0.1, 3, 0), Cuts(0.1, 2, 1))
    assert len({tokenised_columns(rows, ["a"], bpe(), cuts=cuts, cache=cache).fingerprint for cuts in ways}) == 5
    with pytest.raises(InputError, match="texts with labels have one segmentation"):
        tokenised_columns(rows, ["a"], bpe(), LabelColumn("a"), cuts=ways[1], cache=cache)


# ----------------------------------------------------------------------------------------------------------------------


def test_the_second_time_no_text_is_cut(tmp_path, monkeypatch):
    rows = table(tmp_path, [{"text": "one", "label": "b"}, {"text": "", "label": "b"}, {"text": "two", "label": "a"}])
    first = tokenised_columns(rows, ["text"], bpe(), LabelColumn("label"), cache=tmp_path / "cache")
    monkeypatch.setattr(module, "encoded", lambda *_: pytest.fail("a text was cut again"))
    second = tokenised_columns(rows, ["text"], bpe(), LabelColumn("label"), cache=tmp_path / "cache")
    for data in (first, second):
        assert data.labels.tolist() == [1, 0]
        assert data.label_names == ("a", "b")
        assert (len(data), data.skipped) == (2, 1)
    assert first.fingerprint == second.fingerprint


def test_what_decides_the_examples_decides_the_fingerprint(tmp_path):
    rows = table(tmp_path, [{"a": "one", "b": "two", "label": "1"}])
    cache = tmp_path / "cache"
    prints = {
        tokenised_columns(rows, ["a", "b"], bpe(), cache=cache).fingerprint,
        tokenised_columns(rows, ["b", "a"], bpe(), cache=cache).fingerprint,
        tokenised_columns(rows, ["a"], bpe(), cache=cache).fingerprint,
        tokenised_columns(rows, ["a"], bpe(), LabelColumn("label"), cache=cache).fingerprint,
        tokenised_columns(rows, ["a"], bpe(), LabelColumn("label", "number"), cache=cache).fingerprint,
        tokenised_columns(rows, ["a"], bpe(), LabelColumn("label", names=("1", "0")), cache=cache).fingerprint,
        tokenised_columns(rows, ["a"], bpe(300), LabelColumn("label"), cache=cache).fingerprint,
    }
    assert len(prints) == 7
    data = tokenised_columns(rows, ["a", "b"], bpe(), cache=cache)
    assert data.columns["a"].fingerprint != data.columns["b"].fingerprint


@pytest.mark.parametrize(
    ("labels", "names", "expected", "expected_names"),
    [
        (["no", "yes", "maybe", "no"], None, [1, 2, 0, 1], ("maybe", "no", "yes")),
        (["10", "9", "10"], None, [1, 0, 1], ("9", "10")),
        (["1", "01", "0"], None, [2, 1, 0], ("0", "01", "1")),
        (["a", "c"], ("c", "b", "a"), [2, 0], ("c", "b", "a")),
    ],
)
def test_classes_are_numbered_in_order(tmp_path, labels, names, expected, expected_names):
    rows = table(tmp_path, [{"text": "x", "label": label} for label in labels])
    data = tokenised_columns(rows, ["text"], bpe(), LabelColumn("label", names=names), cache=tmp_path / "cache")
    assert data.labels.tolist() == expected
    assert data.labels.dtype == np.int64
    assert data.label_names == expected_names


def test_many_labels_are_renumbered_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("cutaway.data.labels.CHUNK", 16)
    labels = np.random.default_rng(0).integers(0, 12, 100).tolist()
    rows = table(tmp_path, [{"text": "x", "label": label} for label in labels])
    data = tokenised_columns(rows, ["text"], bpe(), LabelColumn("label"), cache=tmp_path / "cache")
    assert data.labels.tolist() == labels


def test_numbers_stay_numbers(tmp_path):
    rows = table(tmp_path, [{"text": "x", "score": score} for score in (4.75, -1, "1e3")])
    data = tokenised_columns(rows, ["text"], bpe(), LabelColumn("score", "number"), cache=tmp_path / "cache")
    assert data.labels.tolist() == [4.75, -1, 1000]
    assert data.label_names is None


@pytest.mark.parametrize("kind", ["bpe", "bytes", "wordpiece"])
@pytest.mark.parametrize("as_list", [True, False])
@same_folder
@given(sentences=st.lists(st.lists(WORD, min_size=1, max_size=6), min_size=1, max_size=5), data=st.data())
def test_the_first_token_of_a_word_bears_its_tag(tmp_path_factory, kind, as_list, sentences, data):
    folder, tokenizer = tmp_path_factory.mktemp("tags"), KINDS[kind]()
    tags = [[data.draw(st.sampled_from(["N", "V", "O"])) for _ in words] for words in sentences]
    join = (lambda words: words) if as_list else "  ".join  # two spaces: words are words
    rows = table(folder, [{"words": join(w), "tags": join(t)} for w, t in zip(sentences, tags, strict=True)])
    found = tokenised_columns(rows, ["words"], tokenizer, LabelColumn("tags", "tags"), cache=folder / "cache")
    assert found.labels.starts.tolist() == found.columns["words"].starts.tolist()
    for words, of_words, ids, of_tokens in zip(
        sentences, tags, found.columns["words"], sequences(found.labels), strict=True
    ):
        assert [found.label_names[tag] for tag in of_tokens if tag != -100] == of_words
        assert ids.tolist() == tokenizer.encode(" ".join(words), special=False)
        # the tokens up to the i-th tag are those of the words before it
        first = [at for at, tag in enumerate(of_tokens) if tag != -100]
        for i, at in enumerate(first):
            before = tokenizer.encode(" ".join(words[:i]), special=False)
            between = [tokenizer.token(id) for id in ids[len(before) : at].tolist()]
            assert between in ([], ["Ġ"]), "a space may be a token by itself"


def test_tags_by_an_example(tmp_path):
    rows = table(tmp_path, [{"text": "the catcat at", "tags": "DET NOUN ADP"}])
    data = tokenised_columns(rows, ["text"], wordpiece(), LabelColumn("tags", "tags"), cache=tmp_path / "cache")
    tokens = [wordpiece().token(id) for id in data.columns["text"][0].tolist()]
    assert tokens == ["the", "cat", "##c", "##at", "a", "##t"]
    assert data.label_names == ("ADP", "DET", "NOUN")
    assert data.labels[0].tolist() == [1, 2, -100, -100, 0, -100]


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([{"text": "x"}], LabelColumn("label"), r"line 1: no column 'label'; there are text"),
        ([{"text": "x", "label": "b"}], LabelColumn("label", names=("a", "c")), "the class 'b' is none of a, c"),
        ([{"text": "x", "label": ""}], LabelColumn("label"), "line 1: the label is empty"),
        ([{"text": "x", "label": "a"}], LabelColumn("label", "number"), "line 1: 'a' is not a number"),
        ([{"text": "x", "label": "nan"}], LabelColumn("label", "number"), "line 1: 'nan' is not a number"),
        ([{"text": "x", "label": ["a"]}], LabelColumn("label"), "line 1: label holds a list"),
        ([{"text": "a b", "label": ["N"]}], LabelColumn("label", "tags"), "line 1: 1 tags for 2 words"),
        ([{"text": ["a", "", "b"], "label": "N N N"}], LabelColumn("label", "tags"), "1: .* no token for the word ''"),
        ([{"text": ["a", "b", ""], "label": "N N N"}], LabelColumn("label", "tags"), "1: .* no token for the word ''"),
        ([{"text": ""}], None, r"no rows \(1 left out because a text was empty\)"),
        ([{"other": "x"}], None, r"line 1: no column 'text'; there are other"),
    ],
)  # fmt: skip
def test_rows_that_make_no_example_are_named(tmp_path, rows, labels, message):
    with pytest.raises(InputError, match=message):
        tokenised_columns(table(tmp_path, rows), ["text"], bpe(), labels, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    "make",
    [
        lambda: LabelColumn("x", "number", names=("a",)),
        lambda: LabelColumn("x", names=("a", "a")),
    ],
)
def test_labels_that_make_no_sense_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_an_unknown_kind_is_refused():
    with pytest.raises(REFUSED, match="colour"):
        LabelColumn("x", "colour")


def test_names_that_make_no_sense_are_refused(tmp_path):
    rows = table(tmp_path, [{"a": "x", "b": "y"}])
    with pytest.raises(InputError, match="each only once"):
        tokenised_columns(rows, ["a", "a"], bpe())
