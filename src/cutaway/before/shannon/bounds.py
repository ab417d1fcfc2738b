"""Shannon's experiment: how much does a letter still tell, once the letters before it are known?

    F_N = entropy of the N-th letter, N − 1 being known          (Prediction and Entropy of Printed English, 1951)

Nobody has the probabilities of English, but readers have them in their heads. Whoever sees N − 1 letters guesses the
next one until it is right; q_i is the share of letters that took i guesses. For one who guesses the likeliest first,

    Σ i (q_i − q_{i+1}) log₂ i   ≤   F_N   ≤   − Σ q_i log₂ q_i

The upper bound holds for every guesser who would guess the same again: text and numbers of guesses can be made from
each other. The lower one is of the best guesser; of a weaker one it may lie too high. Both are about the shares q_i in
all of the text. From the shares in a few letters they come out too low (`bounds`).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from string import ascii_lowercase

import numpy as np
from jaxtyping import Float64, Int64

from cutaway.errors import InputError

LETTERS = " " + ascii_lowercase  # Shannon's 27
SEEN = 10  # a context that was seen less often says too little about what follows it

# What his reader reached, by N: (lower, upper), as commonly quoted; not checked against the paper. From the third on
# each is said to come from 100 letters that were guessed, the first two presumably from tables of letters and digrams.
READER = dict(
    zip(
        (*range(1, 16), 100),
        zip(
            (3.19, 2.50, 2.1, 1.7, 1.7, 1.3, 1.8, 1.0, 1.0, 1.0, 1.3, 1.3, 1.2, 0.9, 1.2, 0.6),
            (4.03, 3.42, 3.0, 2.6, 2.7, 2.2, 2.8, 1.8, 1.9, 2.1, 2.2, 2.3, 2.1, 1.7, 2.1, 1.3),
            strict=True,
        ),
        strict=True,
    )
)


def reduced(text: str) -> str:
    """The text in Shannon's 27 letters: lower case, no accents, no apostrophes; anything else becomes one space.

    >>> reduced("Don't — Émile's 3 cafés!")
    'dont emiles cafes'
    """
    plain = re.sub("['\u2019\u0300-\u036f]", "", unicodedata.normalize("NFKD", text.casefold()))
    return re.sub("[^a-z]+", " ", plain).strip()


def folded(character: str) -> str | None:
    """The letter for a character; None for an apostrophe, which is dropped."""
    return reduced(f"a{character}a")[1:-1][:1] or None


@dataclass(frozen=True)
class Bounds:
    """Bounds of the entropy in bits, from the guesses for `n` letters."""

    n: int
    lower: float
    upper: float


def bounds(ranks: Sequence[int]) -> Bounds:
    """The bounds, from the number of guesses that each letter took.

    The shares are put in falling order first, which Shannon takes for granted: who always needs two guesses knows as
    much as who always needs one, and without the order his lower bound would exceed the upper one.

    A sample shows fewer different numbers of guesses than there are, so both bounds are too low on average: the upper
    one, of k different numbers in n letters, by about (k − 1) / (2 n ln 2) bits. We do not correct that, nor did he.
    """
    if not len(ranks):
        return Bounds(0, nan, nan)
    if min(ranks) < 1:
        raise InputError(f"{min(ranks)} guesses: a letter takes at least one")
    shares = np.sort(np.bincount(ranks)[1:])[::-1] / len(ranks)
    return Bounds(len(ranks), *bounds_of(shares))


def bounds_of(shares: Float64[np.ndarray, " guess"]) -> tuple[float, float]:
    """The formula: lower and upper bound from the shares q₁ ≥ q₂ ≥ …"""
    i = np.arange(1, len(shares) + 1)
    lower = float((i * (shares - np.append(shares[1:], 0.0)) * np.log2(i)).sum())
    some = shares[shares > 0]
    return lower, float(-(some * np.log2(some)).sum()) + 0.0  # + 0.0: no minus before a zero


def counted_guesses(ids: Int64[np.ndarray, " letter"], most: int) -> list[float]:
    """F₁, F₂, … from the text's own n-grams, at most `most`, as long as its contexts were seen often enough.

    This is what the text is to one who has counted all of it, and too low as far as the text is short.
    """
    found: list[float] = []
    context, next_letter, base = np.zeros(len(ids), np.int64), ids.astype(np.int64), int(ids.max()) + 1
    while len(found) < most and len(context) >= SEEN * (int(context.max(initial=-1)) + 1) > 0:
        _, pair, both = np.unique(context * base + next_letter, return_inverse=True, return_counts=True)
        found.append(float(-np.log2(both[pair] / np.bincount(context)[context]).mean()) + 0.0)
        context, next_letter = pair[:-1], next_letter[1:]
    return found
