"""BLEU and chrF: sacrebleu's numbers, its signature, and what is refused."""

import builtins
import re
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from helpers.corpora import corpora
from hypothesis import given
from hypothesis import strategies as st

import cutaway
from cutaway.errors import InputError, MissingExtra
from cutaway.evaluation.bleu import Score, bleu, bleu_counts, chrf, chrf_counts


def test_the_numbers_are_sacrebleus():
    hypotheses, references = corpora()
    theirs = sacrebleu.corpus_bleu(hypotheses, [references])
    ours = bleu(hypotheses, references)
    assert (ours.value, ours.name) == (theirs.score, "BLEU")
    assert 10 < ours.value < 90
    assert chrf(hypotheses, references).value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert chrf(hypotheses, references).name == "chrF2"


@given(st.lists(st.tuples(st.text(), st.text().filter(str.strip)), min_size=1, max_size=8))
def test_of_any_text(sentences):
    hypotheses, references = [list(side) for side in zip(*sentences, strict=True)]
    assert bleu(hypotheses, references).value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert chrf(hypotheses, references).value == sacrebleu.corpus_chrf(hypotheses, [references]).score


def test_the_signature_says_how():
    version = sacrebleu.__version__
    assert bleu(["a"], ["a"]).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    lower = bleu(["A"], ["a"], lowercase=True, tokenize="intl").signature
    assert lower == f"nrefs:1|case:lc|eff:no|tok:intl|smooth:exp|version:{version}"
    assert chrf(["a"], ["a"]).signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


def test_a_score_is_written_with_its_signature():
    assert str(Score(12.345, "case:mixed", "BLEU")) == "BLEU 12.3 (case:mixed)"


def test_case_counts_unless_asked():
    hypotheses, references = corpora()
    lower = [text.lower() for text in hypotheses]
    assert bleu(lower, references).value < bleu(hypotheses, references).value
    assert bleu(lower, references, lowercase=True).value == bleu(hypotheses, references, lowercase=True).value


@pytest.mark.parametrize("counts", [bleu_counts, chrf_counts])
def test_counts_add_up(counts):
    """The score of some sentences is that of the sum of their rows."""
    hypotheses, references = corpora()
    all_of_them = counts(hypotheses, references)
    some = [3, 3, 17, 59]
    alone = counts([hypotheses[i] for i in some], [references[i] for i in some])
    assert np.array_equal(alone.rows, all_of_them.rows[some])
    assert alone.score().value == all_of_them.from_sum(all_of_them.rows[some].sum(axis=0).tolist())


@pytest.mark.parametrize("score", [bleu, chrf])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(InputError, match="2 translations for 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(InputError, match="no references"):
        score([], [])
    with pytest.raises(InputError, match="reference 2 of 2 is empty"):
        score(["a", "b"], ["a", " "])
    assert score(["", "a b c d"], ["a", "a b c d"]).value > 0  # a translation may be empty: it is merely bad


def test_an_unknown_tokenisation_is_refused():
    with pytest.raises(InputError, match=r"tokenize='14a' is not one of .*13a"):
        bleu(["a"], ["a"], tokenize="14a")


def test_without_sacrebleu_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match="'sacrebleu' of the extra 'evaluate'"):
        bleu(["a"], ["a"])


def test_nobody_else_scores_translations():
    src = Path(cutaway.__file__).parent
    found = {str(p.relative_to(src)) for p in src.rglob("*.py") if re.search(r"(import|from) sacrebleu", p.read_text())}
    assert found == {"evaluation/bleu.py"}
