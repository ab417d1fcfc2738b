"""GloVe (6B, 50 numbers for each of 400,000 words): the lecture's analogy, capitals, and what people find alike."""

import numpy as np
import pytest
from helpers.real_weights import real_weights

from cutaway.evaluation.word_similarity import Analogy, Likeness, analogies, likeness
from cutaway.inside.word_vectors import WordVectors

CAPITALS = (
    "Athens Greece Berlin Germany Cairo Egypt Madrid Spain Moscow Russia Oslo Norway Paris France Rome Italy".split()
)
PAIRS = list(zip(CAPITALS[::2], CAPITALS[1::2], strict=True))
SAID = "tiger cat 7.35,book paper 7.46,plane car 5.77,stock phone 1.62,king cabbage 0.23,money cash 9.15,cup tea 6.58"


@pytest.fixture(scope="module")
def glove() -> WordVectors:
    return WordVectors.read(real_weights("glove"))


def test_man_is_to_woman_as_king_is_to_queen(glove: WordVectors):
    assert glove.unit.shape == (400_000, 50)
    assert glove.words[:5] == ["the", ",", ".", "of", "to"]
    assert np.linalg.norm(glove.unit[::1000], axis=1) == pytest.approx(1, abs=1e-5)
    for by in ("add", "mul"):
        assert glove.analogy("man", "woman", "king", 1, by=by).words == ["queen"]
    assert glove.nearest("king", 2).words == ["prince", "queen"]
    assert glove.similarity("king", "queen") == pytest.approx(0.7839, abs=1e-4)


def test_capitals_of_countries(glove: WordVectors):
    questions = [Analogy(*one, *two, "capital-common-countries") for one in PAIRS for two in PAIRS if one != two]
    report = analogies(glove, questions, resamples=0)
    assert (report.n, report.groups["field"]["semantic"].n) == (56, 56)
    assert report.scores["accuracy"] >= 0.8


def test_what_people_find_alike(glove: WordVectors):
    cells = [line.split() for line in SAID.split(",")]
    report = likeness(glove, [Likeness(a, b, float(said)) for a, b, said in cells], resamples=0)
    assert (report.n, report.scores["spearman"] > 0.6) == (7, True)
