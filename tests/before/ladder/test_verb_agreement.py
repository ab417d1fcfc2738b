"""Agreement: the questions are those of the text, and who knows the subject answers them."""

import numpy as np
import pytest

from cutaway.before.ladder.rungs import Counting
from cutaway.before.ladder.split_text import Parts, tokenised
from cutaway.before.ladder.verb_agreement import (
    ALL,
    BEHIND_OTHERS,
    MOST,
    PAST,
    numbers_of,
    questions_of,
    verb_agreement,
)
from cutaway.before.ngrams.predictor import Predictor

HELD_OUT = "x the men were old. They are\nnew, this is his isle and Paris was far; who is? where are"
SUBJECTS = {"man": "was", "men": "were", "dog": "was", "dogs": "were"}


def read(folder, held_out, train="the men were old. It was so. "):
    parts = Parts((train,), (" it was",), (held_out,))
    return parts, tokenised(parts, folder)


def told(text, ids):
    return text.tokenizer.decode(ids)


def test_a_question_is_a_form_with_a_word_behind_it(tmp_path):
    parts, text = read(tmp_path, HELD_OUT)
    asked = questions_of(parts, text)
    right = ["the men were old", "They are\nnew", "this is his", "and Paris was far"]
    wrong = ["the men was old", "They is\nnew", "this are his", "and Paris were far"]
    for question, form, other in zip(asked, right, wrong, strict=True):
        assert told(text, question.right).endswith(form)
        assert told(text, question.wrong).endswith(other)
        assert question.right[: question.start] == question.wrong[: question.start]
        assert question.right[question.start] != question.wrong[question.start]
    assert [question.behind_pronoun for question in asked] == [False, True, True, False]
    assert numbers_of(asked) == {}  # of so few no share is told
    assert numbers_of(asked * 10) == {ALL: 40, BEHIND_OTHERS: 20}
    assert numbers_of(asked * 9) == {ALL: 36}
    assert told(text, asked[3].right) == HELD_OUT[: HELD_OUT.index(";")]  # with all of its past


def test_the_past_is_short_and_questions_are_from_all_over(tmp_path):
    held_out = "".join(f"the {i} men were old and the man was {i}. " for i in range(MOST))
    parts, text = read(tmp_path, held_out)
    asked = questions_of(parts, text)
    assert len(asked) == MOST
    assert max(question.start for question in asked) == PAST
    assert told(text, asked[0].right) == "the 0 men were old"
    assert told(text, asked[-1].right).endswith(f"the man was {MOST - 1}")


class Dislikes(Predictor):
    """Finds texts that end with a certain word, and one behind it, less likely than all others."""

    def __init__(self, text, word):
        self.text, self.word, self.end, self.vocab_size = text, word, None, text.tokenizer.vocab_size

    def log_probabilities(self, ids):
        scores = np.zeros(len(ids))
        scores[-1] = -1.0 if self.word in told(self.text, ids[-8:].tolist()) else 0.0
        return scores

    def next_probabilities(self, past):
        raise AssertionError


@pytest.mark.parametrize(("word", "all_of_them", "others"), [("was", 0.25, 0.5), ("were", 0.5, 0.5), ("is", 0.25, 0.0)])
def test_the_likelier_form_is_the_answer(tmp_path, word, all_of_them, others):
    """A tie is no answer: who dislikes «is» knows nothing of «was»."""
    parts, text = read(tmp_path, "x the men were old and the man was old and they are old. it was so")
    asked = questions_of(parts, text)
    found = verb_agreement(Dislikes(text, word), asked * 10)
    assert found == {ALL: all_of_them, BEHIND_OTHERS: others}
    assert verb_agreement(Dislikes(text, word), asked) == {}


def test_counting_learns_to_agree_as_far_as_it_looks(tmp_path):
    random = np.random.default_rng(0)
    subjects, hows = random.choice(list(SUBJECTS), 800), random.choice(["old", "new"], 800)
    clauses = [f"the {who} {SUBJECTS[who]} {how}. " for who, how in zip(subjects, hows, strict=True)]
    parts, text = read(tmp_path, "".join(clauses[700:]), "".join(clauses[:700]))
    asked, counting = questions_of(parts, text), Counting(text)
    shares = {
        name: verb_agreement(counting.model(name, tmp_path / name, lambda done: None)[0], asked)[ALL]
        for name in ("order-0", "order-2", "order-5")
    }
    assert 0.3 < shares["order-0"] < 0.7  # always the form whose letters are the more frequent
    assert shares["order-5"] == 1.0  # in bytes: «en » and «gs » are in sight
    assert shares["order-0"] <= shares["order-2"] <= shares["order-5"]


def test_a_text_without_these_words_has_no_questions(tmp_path):
    parts, text = read(tmp_path, "der Mann war alt")
    assert questions_of(parts, text) == []
    assert verb_agreement(Dislikes(text, "x"), []) == {}
