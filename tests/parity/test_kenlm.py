"""KenLM reads the ARPA files that we write, and gives every word of a sentence the same probability."""

import math
from pathlib import Path

import kenlm
import numpy as np
import pytest

from cutaway.before import EOS, NGrams, sentences

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
LINES = sentences(README)
NEW = ["a zebra reads the page", "the the the", "zebra", "model", "train a model on the text and serve it"]


@pytest.mark.parametrize("smoothing", ["kneser-ney", "back-off"])
@pytest.mark.parametrize("order", [2, 3, 5, 6])  # kenlm's wheel reads orders 2 to 6
def test_kenlm_scores_the_exported_model_as_we_do(tmp_path, order, smoothing):
    ours = NGrams(LINES, order, smoothing=smoothing)
    ours.save_arpa(tmp_path / "model.arpa")
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    assert theirs.order == order
    for words in [*LINES[:40], *(line.split() for line in NEW)]:
        found = np.array(ours.log_probabilities([*words, EOS])) / math.log(10)
        scores = list(theirs.full_scores(" ".join(words)))
        np.testing.assert_allclose(found, [score for score, _, _ in scores], rtol=1e-5, atol=1e-6)
        assert [unknown for _, _, unknown in scores] == [word not in ours.words for word in [*words, EOS]]
        assert found.sum() == pytest.approx(theirs.score(" ".join(words)), rel=1e-3)  # what the issue asks for
