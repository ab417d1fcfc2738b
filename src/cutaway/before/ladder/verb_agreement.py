"""Verb agreement: "the men … were" and not "was". Does a model prefer the form in the text?

Every held-out is, are, was and were is such a question: after the same context, the likelier of the two forms is the
answer, each with the word after it (so that it is complete, in bytes too). After "they" or "it" the last word decides;
after others ("there", "who", a noun) the subject does. English only: a text without these words has no questions.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cutaway.before.ladder.split_text import Parts, Tokenised
from cutaway.before.ngrams.predictor import Predictor

OTHER = {"is": "are", "are": "is", "was": "were", "were": "was"}
PRONOUNS = frozenset("i you he she it we they this these those".split())  # whose number is plain
QUESTION = re.compile(r"([^\W\d_]+)([ \n]+)(is|are|was|were)(?=[ \n])(\s+\w+)")
ALL, BEHIND_OTHERS = "is, are, was, were", "not behind a pronoun"
PAST = 100  # tokens before the form, at most
MOST = 400  # questions, from all over the text …
LEAST = 20  # … and fewer are not told of: each would be five percent


class Question(NamedTuple):
    """The ids of the context with either form; they differ from `start` on."""

    right: list[int]
    wrong: list[int]
    start: int
    behind_pronoun: bool


def questions_of(parts: Parts, text: Tokenised) -> list[Question]:
    found = [(piece, match) for piece in parts.held_out for match in QUESTION.finditer(piece)]
    chosen = np.linspace(0, len(found) - 1, min(MOST, len(found))).round().astype(int).tolist()
    return list(_asked(text, [found[i] for i in chosen]))


def _asked(text: Tokenised, places: Sequence[tuple[str, re.Match[str]]]) -> Iterator[Question]:
    for piece, match in places:
        before = piece[_word_begins(piece, match.start(3) - 8 * PAST) : match.start(3)]
        right, wrong = (
            text.tokenizer.encode(before + form + match[4], special=False) for form in (match[3], OTHER[match[3]])
        )
        same = next(i for i, (a, b) in enumerate(zip(right, wrong, strict=False)) if a != b)
        if same:
            skip = max(same - PAST, 0)
            yield Question(right[skip:], wrong[skip:], same - skip, match[1].lower() in PRONOUNS)


def _word_begins(piece: str, at: int) -> int:
    """The first white space from `at` on, or the beginning of the piece."""
    return 0 if at <= 0 else next(i for i in range(at, len(piece)) if piece[i].isspace())


def verb_agreement(model: Predictor, questions: Sequence[Question]) -> dict[str, float]:
    """The shares of questions that are answered correctly; shares of too few questions are left out."""

    def likelihood(ids: list[int], start: int) -> float:
        return float(model.log_probabilities(np.array(ids))[start:].sum())

    right = np.array([likelihood(q.right, q.start) > likelihood(q.wrong, q.start) for q in questions], bool)
    others = ~np.array([q.behind_pronoun for q in questions], bool)
    return {
        name: float(which.mean())
        for name, which in ((ALL, right), (BEHIND_OTHERS, right[others]))
        if len(which) >= LEAST
    }


def numbers_of(questions: Sequence[Question]) -> dict[str, int]:
    """The number of questions for each share, where there are enough."""
    counts = {ALL: len(questions), BEHIND_OTHERS: sum(not q.behind_pronoun for q in questions)}
    return {name: n for name, n in counts.items() if n >= LEAST}
