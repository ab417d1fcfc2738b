"""n-grams of words, with the face of a chain; and ARPA files out and in again."""

import gzip
import lzma
import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.before import EOS, SOS, NGrams, sentences
from cutaway.before.ngrams.arpa import read_arpa, write_arpa
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.errors import CheckpointError, InputError

WORDS = st.sampled_from("a b c d é … ä\u00a0ö".split(" "))  # the last one has a space that parts no words there
LINES = st.lists(st.lists(WORDS, max_size=8), min_size=1, max_size=6).filter(lambda lines: any(map(len, lines)))
TEXTS = st.lists(st.sampled_from(["a", "b", "c", "never", EOS]), max_size=12)
ORDERS = st.integers(1, 7)
KINDS = st.sampled_from(["kneser-ney", "back-off"])


@given(LINES, ORDERS, KINDS, TEXTS)
def test_words_are_predicted_as_their_ids(lines, order, kind, text):
    model = NGrams(lines, order, smoothing=kind)
    p = [model.probabilities(text[:i]) for i in range(len(text) + 1)]
    assert all(set(row) == {"<unk>", EOS, *(word for line in lines for word in line)} for row in p)
    assert all(math.fsum(row.values()) == pytest.approx(1, abs=1e-6) for row in p)
    wanted = [math.log(row.get(word, row["<unk>"])) for row, word in zip(p, text, strict=False)]
    assert model.log_probabilities(text) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_ten_words_are_enough():
    lines = sentences("check whether the battery ran down please\ncheck the program")
    for order in range(1, 8):
        model = NGrams(lines, order)
        assert "discounts ½, 1, 1½" in str(model)
        assert math.fsum(model.probabilities(["the"]).values()) == pytest.approx(1, abs=1e-6)
        assert model.generate(["check"], limit=5)[0] == "check"
    p = NGrams(lines, 3).probabilities("check whether the battery".split())
    assert max(p, key=p.__getitem__) == "ran"


def test_a_sentence_that_ends_is_followed_by_one_that_begins():
    model = NGrams([["a", "b"], ["a", "c"]], 3)
    assert model.probabilities(["a", "b", EOS]) == model.probabilities([])


def test_texts_without_words_are_refused():
    with pytest.raises(InputError, match="the text is empty"):
        NGrams([])
    with pytest.raises(InputError, match="the text is empty"):
        NGrams([[], []])
    with pytest.raises(InputError, match="sentences"):
        NGrams("a text")
    for mark in (SOS, EOS):
        with pytest.raises(InputError, match=f"'{mark}' stands in a sentence"):
            NGrams([["a", mark]])


def test_the_page_about_chains_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "before.md").read_text()
    section = page.partition("## Markov chains and n-grams")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    exec(block, {"__name__": "__main__"})
    assert f"```text\n{capsys.readouterr().out}```\n" in section


# --- ARPA files -------------------------------------------------------------------------------------------------------


@given(LINES, ORDERS, KINDS, TEXTS)
def test_an_arpa_file_holds_the_whole_model(lines, order, kind, text):
    model = NGrams(lines, order, smoothing=kind)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        model.save_arpa(path)
        again = NGrams.from_arpa(path)
        again.save_arpa(Path(folder) / "again.arpa")
        assert read_arpa(path)[1] == read_arpa(Path(folder) / "again.arpa")[1] == model.words
    assert again.words == model.words
    for one, other in zip(again.model.tables, model.model.tables, strict=True):
        assert np.array_equal(one.keys, other.keys)
        np.testing.assert_allclose(one.log_p, other.log_p, rtol=2e-7)
        np.testing.assert_allclose(one.log_weight, other.log_weight, rtol=2e-7)
    assert again.log_probabilities(text) == pytest.approx(model.log_probabilities(text), rel=1e-6)


def test_ids_are_names_where_there_are_none(tmp_path):
    model = train_ngrams(np.array([3, 1, 2, 0, 3, 1, 0]), 4, 2, end=0)
    write_arpa(model, tmp_path / "ids.arpa")
    again, names = read_arpa(tmp_path / "ids.arpa")
    assert names == (EOS, "1", "2", "3", "<unk>")
    wanted = model.log_probabilities(np.array([3, 1, 2, 0, 2]))
    np.testing.assert_allclose(again.log_probabilities(np.array([3, 1, 2, 0, 2])), wanted, rtol=1e-6)


def test_names_that_an_arpa_file_cannot_tell_apart_are_refused(tmp_path):
    model = train_ngrams(np.array([0, 1, 2]), 3, 2)
    for names, what in ((["a", "b c", "d"], "'b c'"), (["a", "", "d"], "''"), (["a", "b", "b"], "'b' is given")):
        with pytest.raises(InputError, match=what):
            write_arpa(model, tmp_path / "model.arpa", names)
    with pytest.raises(InputError, match="2 names for 3 ids"):
        write_arpa(model, tmp_path / "model.arpa", ["a", "b"])
    assert not list(tmp_path.iterdir())


SMALL = """
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1 a -0.5
-0.5 </s>
-99 <s> -0.25
-2 b

\\2-grams:
-0.1 <s> a
-0.2\ta </s>

\\end\\
"""


def test_a_file_by_another_hand_is_read(tmp_path):
    (tmp_path / "small.arpa").write_text(SMALL)
    model = NGrams.from_arpa(tmp_path / "small.arpa")
    assert model.words == ("a", EOS, "b", "<unk>")
    found = np.array(model.log_probabilities(["a", EOS, "b", "a", "b", "never"])) / math.log(10)
    np.testing.assert_allclose(found, [-0.1, -0.2, -0.25 - 2, -1, -0.5 - 2, -math.inf], rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("\\data\\", "data", r"line 2 should be \\data"),
        ("ngram 2=2", "ngram 3=2", "line 4 should be ngram 2="),
        ("ngram 2=2", "ngram 2=3", "line 16 should have"),
        ("ngram 2=2", "ngram 2=1", r"line 14 should be \\end"),
        ("-1 a -0.5", "one a -0.5", "line 7 should have"),
        ("-1 a -0.5", "1 a -0.5", "line 7 should have log p ≤ 0"),
        ("-1 a -0.5", "nan a -0.5", "line 7 should have log p ≤ 0"),
        ("-1 a -0.5", "-1 a inf", "line 7 should have log p ≤ 0"),
        ("-2 b", "-2 a", "order 1 twice"),
        ("-99 <s> -0.25", "-99 <t> -0.25", "has no <s>"),
        ("<s> a", "<s> c", "line 13 has 'c'"),
        ("a </s>", "<s> a", "order 2 twice"),
        ("\\end\\", "", r"should be \\end"),
        ("-2 b", "-2 " + "b" * 70_000, "line 10 is too long"),
    ],
)
def test_a_damaged_file_is_refused_by_line(tmp_path, old, new, what):
    path = tmp_path / "broken.arpa"
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=what):
        read_arpa(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_packed_file_is_read(tmp_path, pack):
    (tmp_path / "small.arpa").write_text(SMALL)
    path = tmp_path / "small.arpa.packed"
    path.write_bytes(pack(SMALL.encode()))
    (plain, names), (model, its) = read_arpa(tmp_path / "small.arpa"), read_arpa(path)
    assert its == names
    for table, other in zip(model.tables, plain.tables, strict=True):
        assert all(map(np.array_equal, table, other))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=r"small\.arpa\.packed cannot be read"):
        read_arpa(path)


def test_an_ngram_without_its_context_is_refused(tmp_path):
    text = SMALL.replace("ngram 2=2", "ngram 2=2\nngram 3=1").replace("\\end", "\\3-grams:\n-1 b a </s>\n\\end")
    (tmp_path / "model.arpa").write_text(text)
    with pytest.raises(CheckpointError, match="has 'b a <eos>', but not its context"):
        read_arpa(tmp_path / "model.arpa")


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "model.arpa").write_bytes(b"\\data\\\nngram 1=1\n\\1-grams:\n-1 \xff\n")
    with pytest.raises(CheckpointError, match="line 4 is not UTF-8"):
        read_arpa(tmp_path / "model.arpa")
    with pytest.raises(CheckpointError, match=r"none\.arpa"):
        read_arpa(tmp_path / "none.arpa")
