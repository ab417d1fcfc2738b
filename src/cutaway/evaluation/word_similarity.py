"""How good word vectors are: analogies, and how alike people find two words.

    report = analogies(vectors, [Analogy("Athens", "Greece", "Oslo", "Norway", "capital-common-countries"), …])
    report = likeness(vectors, [Likeness("tiger", "cat", 7.35), …])

Analogies (Mikolov et al. 2013): the share of right answers, in upper or lower case; none of the three given words can
be the answer. Only the first 300,000 words are searched, as gensim does, and a question with a word that is not among
them is left out and counted. Likeness (WordSim-353, SimLex-999): Spearman's correlation of the cosines with what people
said, over the pairs whose words are known (among the first, where so many are named).

A thousand questions are compared with two thousand words at a time: all 19,544 with 300,000 words would be 23 GB of
cosines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.errors import InputError
from cutaway.evaluation import bootstrap, scores
from cutaway.evaluation.minimal_pairs import PairGroup, groups_of
from cutaway.evaluation.options import BootstrapOptions
from cutaway.evaluation.report import ItemReport

MOST = 300_000  # words that are searched
WORDS_AT_ONCE, QUESTIONS_AT_ONCE = 2048, 1024  # blocks of 8 MB
EPSILON = 1e-6

Cosines = Float[Tensor, "*question word"]


@runtime_checkable
class Vectors(Protocol):
    """What is asked: words, the most frequent first, and a row of length 1 for each."""

    @property
    def words(self) -> list[str]: ...
    @property
    def unit(self) -> Float[np.ndarray, "word d"]: ...
    @property
    def several(self) -> Mapping[str, list[str]]: ...


@dataclass(frozen=True)
class Analogy:
    """a : b :: c : wanted, and the section of the test it stands in."""

    a: str
    b: str
    c: str
    wanted: str
    section: str = ""

    @property
    def of(self) -> dict[str, str]:
        """Sections named gram… are of grammar, the others of the world."""
        field = "syntactic" if self.section.startswith("gram") else "semantic"
        return {"field": field, "kind": self.section} if self.section else {}


@dataclass(frozen=True)
class Likeness:
    """Two words, and how alike people find them."""

    a: str
    b: str
    said: float


@dataclass(frozen=True)
class WordReport(ItemReport):
    """`groups` are the same score by field and by section."""

    groups: dict[str, dict[str, PairGroup]] = field(default_factory=dict)


def three_cos_add(a: Cosines, b: Cosines, c: Cosines) -> Cosines:
    return b - a + c


def three_cos_mul(a: Cosines, b: Cosines, c: Cosines) -> Cosines:
    return (1 + b) * (1 + c) / (2 * (1 + a) + 4 * EPSILON)


@with_options
def analogies(
    vectors: Vectors,
    questions: Sequence[Analogy],
    *,
    by: Literal["add", "mul"] = "add",
    most: int | None = MOST,
    progress: Progress = no_progress,
    options: BootstrapOptions,
) -> WordReport:
    """The share of the analogies whose answer is the nearest word, among the first `most`."""
    folded = [word.casefold() for word in vectors.words[:most]]
    number: dict[str, int] = {}
    for row, word in enumerate(folded):
        number.setdefault(word, row)
    asked = [[word.casefold() for word in (q.a, q.b, q.c, q.wanted)] for q in questions]
    kept = [i for i, words in enumerate(asked) if all(word in number for word in words)]
    if not kept:
        raise InputError(f"these vectors know all four words of none of the {len(questions):,} analogies")
    rows = np.array([[number[word] for word in asked[i]] for i in kept])
    same = _spellings(folded, {word for i in kept for word in asked[i][:3]})
    without = [sorted({row for word in asked[i][:3] for row in same[word]}) for i in kept]
    answers = _answers(vectors.unit[:most], rows[:, :3], without, by, progress)
    points = np.array(
        [folded[row] == asked[i][3] for row, i in zip(answers.tolist(), kept, strict=True)], dtype=np.float64
    )
    some = [questions[i] for i in kept]
    return WordReport(
        "analogies",
        len(kept),
        {"accuracy": float(points.mean())},
        bootstrap.intervals({"accuracy": bootstrap.mean_of(points)}, len(points), options),
        {"accuracy": f"3Cos{by.title()}, the first {len(folded):,} words, case ignored, the three words left out"},
        settings={"asked": len(questions), **_several(vectors, (w for q in some for w in (q.a, q.b, q.c, q.wanted)))},
        notes=_told(len(questions) - len(kept), len(questions), "analogies"),
        items=tuple(
            {"asked": [q.a, q.b, q.c], "wanted": q.wanted, "said": vectors.words[row], "section": q.section}
            for q, row in zip(some, answers.tolist(), strict=True)
        ),
        groups=groups_of(some, points, options),
    )


@with_options
def likeness(
    vectors: Vectors,
    pairs: Sequence[Likeness],
    *,
    most: int | None = None,
    progress: Progress = no_progress,
    options: BootstrapOptions,
) -> WordReport:
    """Spearman's correlation of cosines and what people said, of pairs whose words are among the first `most`."""
    number: dict[str, int] = {}
    for row, word in enumerate(vectors.words[:most]):
        number.setdefault(word.casefold(), row)
    kept = [pair for pair in pairs if pair.a.casefold() in number and pair.b.casefold() in number]
    if len(kept) < 2:
        raise InputError(f"these vectors know the words of {len(kept)} of {len(pairs):,} pairs")
    a, b = (
        vectors.unit[[number[word.casefold()] for word in side]]
        for side in zip(*((p.a, p.b) for p in kept), strict=True)
    )
    cosines, said = (a * b).sum(axis=1).astype(np.float64), np.array([pair.said for pair in kept])
    progress(len(kept), len(kept))
    statistic = bootstrap.each(scores.spearman, cosines, said)
    return WordReport(
        "likeness",
        len(kept),
        {"spearman": scores.spearman(cosines, said)},
        bootstrap.intervals({"spearman": statistic}, len(kept), options),
        {"spearman": "of the cosine and what people said, case ignored"},
        settings={"asked": len(pairs), **_several(vectors, (w for p in kept for w in (p.a, p.b)))},
        notes=_told(len(pairs) - len(kept), len(pairs), "pairs"),
        items=tuple(
            {"words": [pair.a, pair.b], "said": pair.said, "cosine": float(cosine)}
            for pair, cosine in zip(kept, cosines, strict=True)
        ),
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _answers(
    unit: Float[np.ndarray, "word d"], rows: Int[np.ndarray, "question 3"], without: Sequence[Sequence[int]],
    by: str, progress: Progress,
) -> Int[np.ndarray, " question"]:  # fmt: skip
    """The best word of each question, block by block."""
    words = torch.from_numpy(unit)
    barred = np.array([(question, row) for question, its in enumerate(without) for row in its])
    answers = torch.zeros(len(rows), dtype=torch.long)
    for first in range(0, len(rows), QUESTIONS_AT_ONCE):
        three = [words[torch.from_numpy(rows[first : first + QUESTIONS_AT_ONCE, side])] for side in range(3)]
        here = barred[(barred[:, 0] >= first) & (barred[:, 0] < first + QUESTIONS_AT_ONCE)]
        answers[first : first + len(three[0])] = _best(words, three, here[:, 0] - first, here[:, 1], by)
        progress(first + len(three[0]), len(rows))
    return answers.numpy()


def _best(
    words: Float[Tensor, "word d"], three: Sequence[Float[Tensor, "question d"]],
    question: Int[np.ndarray, " barred"], row: Int[np.ndarray, " barred"], by: str,
) -> Int[Tensor, " question"]:  # fmt: skip
    """The best word of some questions; no question gets a row that is barred for it."""
    best = torch.full((len(three[0]),), -torch.inf, dtype=words.dtype)
    answer = torch.zeros(len(best), dtype=torch.long)
    for start in range(0, len(words), WORDS_AT_ONCE):
        block = words[start : start + WORDS_AT_ONCE].T
        # 3CosAdd is linear: the vectors are added, not their cosines
        found = three_cos_add(*three) @ block if by == "add" else three_cos_mul(*(each @ block for each in three))
        out = (row >= start) & (row < start + WORDS_AT_ONCE)
        found[question[out], row[out] - start] = -torch.inf
        highest = found.amax(dim=1)
        better = highest > best
        best = torch.where(better, highest, best)
        answer[better] = found[better].argmax(dim=1) + start  # few are: to look where takes longer than how high
    return answer


def _spellings(folded: Sequence[str], wanted: set[str]) -> dict[str, list[int]]:
    """Every row of each wanted word: King and king are one."""
    found: dict[str, list[int]] = {word: [] for word in wanted}
    for row, word in enumerate(folded):
        if word in wanted:
            found[word].append(row)
    return found


def _several(vectors: Vectors, words: Any) -> dict[str, int]:
    """How many of the words have the mean of several tokens as their vector, where some may."""
    return {"words_of_several_tokens": len({w for w in words if w in vectors.several})} if vectors.several else {}


def _told(n: int, total: int, what: str) -> tuple[str, ...]:
    return (f"{n:,} of {total:,} {what} have a word that is not known, and were left out",) if n else ()
