"""Which language a text is in, among the few that the models here read.

    detect("Guten Tag!", ["en", "de"])        # [Guess(language='de', confidence=0.98…), Guess('en', 0.0…)]

A language is an n-gram model of the letters of a short text (`language_samples/`): how likely is each letter after the
four before it, with less and less of the context where that was rare (Witten & Bell 1991)?
Beside the languages stands a model that knows the letters of all and the order of none: what is likelier there is in
another language, and the confidence of each is low.
"""

import math
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ORDER = 5
LETTERS = 2000  # of a text that are looked at
ALPHABET = 100  # characters that a text may be made of, more or less
SHARPNESS = 0.4  # letters depend on more than those before them, and a model of few words is too sure
RARELY_NONE = -6.0  # ln of how rarely a text is in none of the languages
FOREIGN = 4.0  # ln of how much likelier a letter is that no language has, if it is none of them
NO_WORDS = re.compile(r"[^\w'’]+|[\d_]+")
SAMPLES = {path.stem: path for path in sorted(Path(__file__).with_name("language_samples").glob("*.txt"))}


class Guess(NamedTuple):
    """A language, and how likely it is from 0 to 1."""

    language: str
    confidence: float


def detect(text: str, languages: Collection[str]) -> list[Guess]:
    """The languages, the likeliest first; those that are not known, and all of a text without words, have 0."""
    words = _words(text[: 4 * LETTERS])[:LETTERS]
    sums = {name: SHARPNESS * _model(name).log_p(words) for name in ("", *SAMPLES)} if words.strip() else {}
    if sums:
        sums[""] += RARELY_NONE + SHARPNESS * sum(FOREIGN for letter in words if letter not in _model("").counts[""])
    top = max(sums.values(), default=0.0)
    weights = {name: math.exp(one - top) for name, one in sums.items()}
    total = sum(weights.values())
    found = [Guess(name, weights[name] / total if name in weights else 0.0) for name in dict.fromkeys(languages)]
    return sorted(found, key=lambda guess: -guess.confidence)


def _words(text: str) -> str:
    return f" {NO_WORDS.sub(' ', text.lower().replace('’', chr(39)))} "


class LetterModel:
    """p(letter | the letters before it), of contexts as long as the order allows."""

    def __init__(self, text: str, order: int) -> None:
        self.order = order
        self.counts: dict[str, Counter[str]] = {}
        for end in range(1, len(text)):
            for n in range(order):
                if n <= end:
                    self.counts.setdefault(text[end - n : end], Counter())[text[end]] += 1
        self.totals = {context: (sum(its.values()), len(its)) for context, its in self.counts.items()}

    def log_p(self, text: str) -> float:
        return sum(
            math.log(self._p(text[max(0, end - self.order + 1) : end], text[end])) for end in range(1, len(text))
        )

    def _p(self, context: str, letter: str) -> float:
        p = 1 / ALPHABET
        for n in range(len(context) + 1):
            its = context[len(context) - n :]
            if its not in self.counts:
                break
            seen, kinds = self.totals[its]
            p = (self.counts[its][letter] + kinds * p) / (seen + kinds)
        return p


@lru_cache(maxsize=32)
def _model(name: str) -> LetterModel:
    """Of a language; without a name, of the letters of all."""
    texts = [SAMPLES[name]] if name else SAMPLES.values()
    return LetterModel(_words("\n".join(path.read_text(encoding="utf-8") for path in texts)), ORDER if name else 2)
