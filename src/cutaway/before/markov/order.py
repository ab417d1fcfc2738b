"""Markov chains: the last word, or the last few, are the one active feature, and its row says what comes next.

    first order    p(next | my)              V rows: «show me my» → directories .2, files .3, photos .5
    second order   p(next | battery, ran)    V² rows: two words back, `ran` is no longer one and the same
    order n        p(next | the last n)      Vⁿ rows, most of which no text will ever fill

(Markov 1913 counted vowels and consonants in Pushkin.)
"""

from collections.abc import Sequence

from cutaway.before.markov.chain import Chain, Feature
from cutaway.errors import ConfigError


class MarkovChain(Chain):
    """`MarkovChain(sentences(text), order=2)`."""

    def __init__(
        self, lines: Sequence[Sequence[str]], order: int = 1, *, weights: Sequence[int | float] | None = None
    ) -> None:
        if order < 1:
            raise ConfigError(f"order={order}: a chain looks at one word or more")
        self.order = self.reach = order
        super().__init__(lines, weights)

    def features(self, past: Sequence[str]) -> list[Feature]:
        return [tuple(past[-self.order :])] if len(past) >= self.order else []

    def __str__(self) -> str:
        return f"Markov chain of order {self.order}"
