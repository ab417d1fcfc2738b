"""Where the rungs differ: what of the held-out text each of them tells well, by what can be said of words exactly.

A token counts where its last byte stands: in a word (letters, and an apostrophe between them), or between words. Words
are compared in small letters. Each token is of one of the KINDS, so their bits add up to those of the whole text.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from cutaway.before.ladder.split_text import Parts, Tokenised

FREQUENT = 100  # words of the training text
PASSAGE = 100  # «shortly before»: among so many words
KINDS = (
    f"the {FREQUENT} most frequent words",
    "rarer, said shortly before",
    "rarer, not said before",
    "never in training",
    "between words",
)
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
INSIDE = re.compile(r"[^\W_],?[ ]+$")  # what stands before a word within a line, where no sentence ends
BEFORE = 40  # characters of an example

Scores = Float64[np.ndarray, " scored"]  # ln p of each token


class HeldOutWord(NamedTuple):
    """A held-out word: its tokens among all that are scored, and the text before it."""

    text: str
    before: str
    tokens: slice


@dataclass(frozen=True, eq=False)
class Places:
    """Of each token that is scored: its kind, how many bytes, whether its word has a capital within a sentence,
    and whether it is the first of its word."""

    kind: Int64[np.ndarray, " scored"]
    n_bytes: Int64[np.ndarray, " scored"]
    capital: Bool[np.ndarray, " scored"]
    first: Bool[np.ndarray, " scored"]
    words: tuple[HeldOutWord, ...]

    def masks(self) -> dict[str, Bool[np.ndarray, " scored"]]:
        in_word = self.kind < len(KINDS) - 1
        by_kind = {name: self.kind == number for number, name in enumerate(KINDS)}
        return by_kind | {
            "capitals within a sentence": self.capital,
            "where a word begins": in_word & self.first,
            "where it goes on": in_word & ~self.first,
        }


def places_of(parts: Parts, text: Tokenised) -> Places:
    times = Counter(word.lower() for piece in parts.train for word in WORD.findall(piece))
    frequent = {word for word, _ in times.most_common(FREQUENT)}
    found = [
        _places(piece, text.lengths(ids), times, frequent)
        for piece, ids in zip(parts.held_out, text.held_out, strict=True)
    ]
    words: list[HeldOutWord] = []
    at = 0
    for one in found:
        words += [word._replace(tokens=slice(word.tokens.start + at, word.tokens.stop + at)) for word in one.words]
        at += len(one.kind)
    kind, n_bytes, capital, first = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("kind", "n_bytes", "capital", "first")
    )
    return Places(kind, n_bytes, capital, first, tuple(words))


def _places(piece: str, lengths: Int64[np.ndarray, " token"], times: Counter[str], frequent: set[str]) -> Places:
    """The places of one piece, whose first token is not scored."""
    last = np.cumsum(lengths) - 1  # the last byte of each token
    byte_of = np.cumsum([0, *(len(character.encode()) for character in piece)])
    kind, capital, first = np.full(len(last), len(KINDS) - 1), np.zeros(len(last), bool), np.zeros(len(last), bool)
    words: list[HeldOutWord] = []
    said: list[str] = []
    for found in WORD.finditer(piece):
        start, stop = np.searchsorted(last, byte_of[list(found.span())]).tolist()
        name = found[0].lower()
        before = piece[max(0, found.start() - BEFORE) : found.start()]
        kind[start:stop] = _kind(name, said[-PASSAGE:], times, frequent)
        capital[start:stop] = found[0][0].isupper() and name != "i" and bool(INSIDE.search(before))
        first[start : start + 1] = stop > start
        said.append(name)
        if stop > start >= 1:
            words.append(HeldOutWord(found[0], before, slice(start - 1, stop - 1)))
    return Places(kind[1:], lengths[1:], capital[1:], first[1:], tuple(words))


def _kind(word: str, said: Sequence[str], times: Mapping[str, int], frequent: set[str]) -> int:
    if word in frequent:
        return 0
    return 3 if word not in times else 1 if word in said else 2


def bits_by_place(places: Places, scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Bits per byte of each model, by kind of token; kinds that do not occur are left out."""
    rows = []
    for name, mask in places.masks().items():
        n_bytes = int(places.n_bytes[mask].sum())
        if n_bytes:
            bits = {rung: -float(said[mask].sum()) / log(2) / n_bytes for rung, said in scores.items()}
            rows.append({"what": name, "share": n_bytes / int(places.n_bytes.sum()), "bits_per_byte": bits})
    return rows


def best_gains(places: Places, better: Scores, worse: Scores, n: int = 8) -> list[dict[str, Any]]:
    """The words for which one model gains most bits over another, each word once."""
    gains: dict[str, tuple[float, HeldOutWord]] = {}
    for word in places.words:
        gain = float((better[word.tokens] - worse[word.tokens]).sum()) / log(2)
        if gain > gains.get(word.text.lower(), (0.0, word))[0]:
            gains[word.text.lower()] = gain, word
    ranked = sorted(gains.values(), key=lambda each: -each[0])[:n]
    return [{"word": word.text, "before": word.before, "bits": round(gain, 2)} for gain, word in ranked]
