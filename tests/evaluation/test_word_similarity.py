"""Analogies and likeness: block by block as all at once, and with `gensim` beside us."""

import gzip
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from cutaway.errors import InputError
from cutaway.evaluation import word_similarity
from cutaway.evaluation.word_similarity import Analogy, Likeness, analogies, likeness
from cutaway.evaluation.word_tests import read_word_test
from cutaway.inside.word_vectors import WordVectors

FEW: dict[str, Any] = {"resamples": 20}
RNG = np.random.default_rng(0)
WORDS = [f"w{i}" for i in range(60)] + ["W0", "W7"]
MATRIX = RNG.normal(size=(62, 10)).astype(np.float32)
VECTORS = WordVectors.make(WORDS, MATRIX)
QUESTIONS = [
    Analogy(*(WORDS[i] for i in RNG.permutation(60)[:4]), ["capitals", "gram1-plural"][n % 2]) for n in range(50)
]


def answers(by: str, questions: list[Analogy]) -> list[str]:
    """The first word of each analogy that is none of the three, however it is spelled."""
    found = []
    for q in questions:
        given = {word.lower() for word in (q.a, q.b, q.c)}
        ranked = VECTORS.analogy(q.a, q.b, q.c, 20, by=by).words
        found.append(next(word for word in ranked if word.lower() not in given))
    return found


@pytest.mark.parametrize("by", ["add", "mul"])
@pytest.mark.parametrize("at_once", [(2048, 1024), (7, 3), (1, 1)])
def test_block_by_block_is_word_by_word(monkeypatch, by, at_once):
    monkeypatch.setattr(word_similarity, "WORDS_AT_ONCE", at_once[0])
    monkeypatch.setattr(word_similarity, "QUESTIONS_AT_ONCE", at_once[1])
    report = analogies(VECTORS, QUESTIONS, by=by, **FEW)
    assert [item["said"] for item in report.items] == answers(by, QUESTIONS)


def test_the_score_by_sections_and_what_was_left_out():
    right = [
        Analogy(q.a, q.b, q.c, said, q.section) for q, said in zip(QUESTIONS, answers("add", QUESTIONS), strict=True)
    ]
    mixed = right[:20] + QUESTIONS[20:] + [Analogy("w1", "w2", "w3", "nobody", "capitals")]
    report = analogies(VECTORS, mixed, **FEW)
    expected = np.mean(
        [q.wanted.lower() == said.lower() for q, said in zip(mixed, answers("add", mixed[:50]), strict=False)]
    )
    assert (report.n, report.scores["accuracy"], report.settings["asked"]) == (50, expected, 51)
    assert report.notes == ("1 of 51 analogies have a word that is not known, and were left out",)
    assert {name: group.n for name, group in report.groups["field"].items()} == {"semantic": 25, "syntactic": 25}
    assert set(report.groups["kind"]) == {"capitals", "gram1-plural"}
    with pytest.raises(InputError, match="all four words of none of the"):
        analogies(VECTORS, mixed[-1:], **FEW)


def test_only_the_first_words_are_searched_and_asked():
    report = analogies(VECTORS, QUESTIONS, most=40, **FEW)
    assert all(WORDS.index(item["said"]) < 40 for item in report.items)
    assert all(WORDS.index(word) < 40 for item in report.items for word in item["asked"])
    assert "the first 40 words" in report.signatures["accuracy"]


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")  # gensim calls itself so
@pytest.mark.parametrize("most", [300_000, 45])
def test_analogies_are_gensims(tmp_path, most):
    from gensim.models import KeyedVectors

    right = [
        Analogy(q.a.upper(), q.b, q.c, said, "s") for q, said in zip(QUESTIONS, answers("add", QUESTIONS), strict=True)
    ]
    some = right[:30] + QUESTIONS[30:]
    path = tmp_path / "questions.txt"
    path.write_text(": s\n" + "".join(f"{q.a} {q.b} {q.c} {q.wanted}\n" for q in some))
    theirs = KeyedVectors(10)
    theirs.add_vectors(WORDS, MATRIX)
    score, sections = theirs.evaluate_word_analogies(str(path), restrict_vocab=most)
    ours = analogies(VECTORS, read_word_test([path]), most=most, **FEW)
    assert ours.n == len(sections[-1]["correct"]) + len(sections[-1]["incorrect"])
    assert ours.scores["accuracy"] == pytest.approx(score)
    near = theirs.most_similar("w3", topn=5)
    assert VECTORS.nearest("w3", 5).words == [word for word, _ in near]
    for by, their in (("add", theirs.most_similar), ("mul", theirs.most_similar_cosmul)):
        found = VECTORS.analogy("w1", "w2", "w3", 5, by=by)
        assert found.words == [word for word, _ in their(positive=["w2", "w3"], negative=["w1"], topn=5)]


def test_likeness_is_scipys_and_gensims(tmp_path):
    from gensim.models import KeyedVectors

    pairs = [Likeness(WORDS[i], WORDS[i + 7], float(i % 9)) for i in range(40)]
    report = likeness(VECTORS, [*pairs, Likeness("w1", "nobody", 3.0)], **FEW)
    cosines = [VECTORS.similarity(pair.a, pair.b) for pair in pairs]
    assert report.scores["spearman"] == pytest.approx(spearmanr(cosines, [pair.said for pair in pairs]).statistic)
    assert (report.n, report.settings["asked"], len(report.notes)) == (40, 41, 1)
    assert report.intervals["spearman"].low < report.scores["spearman"] < report.intervals["spearman"].high
    path = tmp_path / "pairs.tsv"
    path.write_text("# said by people\n" + "".join(f"{p.a}\t{p.b}\t{p.said}\n" for p in pairs))
    theirs = KeyedVectors(10)
    theirs.add_vectors(WORDS, MATRIX)
    assert theirs.evaluate_word_pairs(str(path))[1].statistic == pytest.approx(report.scores["spearman"])
    assert read_word_test([path]) == pairs


def test_likeness_knows_the_first_words_and_no_option_that_it_has_not():
    pairs = [Likeness(WORDS[i], WORDS[i + 1], float(i)) for i in range(8)]
    assert likeness(VECTORS, pairs, most=5, **FEW).n == 4
    with pytest.raises(InputError, match="these vectors know the words of 0 of 8 pairs"):
        likeness(VECTORS, pairs, most=1)
    with pytest.raises(TypeError, match="mistake"):
        likeness(VECTORS, pairs, mistake=7)


def test_files_are_known_by_their_beginning(tmp_path):
    path = tmp_path / "q.txt.gz"
    path.write_bytes(gzip.compress(b": capitals\nA B C D\n\n: gram1\na b c d\n"))
    assert read_word_test([path]) == [Analogy("A", "B", "C", "D", "capitals"), Analogy("a", "b", "c", "d", "gram1")]
    assert read_word_test([path], limit=1) == [Analogy("A", "B", "C", "D", "capitals")]
    for text in ("Call me Ishmael.\n", "a man\ta dog\t3.5\n", "a\tb\tscore\n", "a\tb\n", "", "\n"):
        (tmp_path / "a.tsv").write_text(text)
        assert read_word_test([tmp_path / "a.tsv"]) is None
    (tmp_path / "a.tsv").write_text("a\tb\t1\na\tb\n")
    with pytest.raises(InputError, match="line 2: expected two words and a number"):
        read_word_test([tmp_path / "a.tsv"])
    (tmp_path / "a.tsv").write_text(": x\na b c\n")
    with pytest.raises(InputError, match="line 2: 3 words; an analogy has four"):
        read_word_test([tmp_path / "a.tsv"])
