"""Second order with skips, and its masks: selective attention before there was attention.

Every earlier word makes a feature with the most recent one, whatever stands between them: in «check the battery log
and find out whether it ran» nine features end in `ran`. All of them vote, and eight say .5 down, .5 please. A mask for
each most recent word keeps the few that tell.

What the lecture leaves open, and we decide:
- A word that stands twice before the last one makes one feature, not two: features are there or not (one-hot).
- Where a mask leaves no feature, all of them vote. Softmax does the same: equal scores share the look equally.
- The lecture's mask is set by hand. `informative` finds one by counting; a Transformer learns it.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from cutaway.before.markov.chain import Chain, Feature, Matrix, plain_matrix, zero_matrix
from cutaway.before.markov.order import MarkovChain
from cutaway.errors import ConfigError, InputError

REACH = 100  # words; the lecture's sentences are shorter, and a book without line ends should not fill the memory


class Skips(Chain):
    """Second order with skips: the features are (earlier word, most recent word)."""

    order = 2
    between = " … "

    def __init__(
        self, lines: Sequence[Sequence[str]], *, reach: int = REACH, weights: Sequence[int | float] | None = None
    ) -> None:
        if reach < 2:
            raise ConfigError(f"reach={reach}: a feature needs two words")
        self.reach = reach
        super().__init__(lines, weights)

    def features(self, past: Sequence[str]) -> list[Feature]:
        return [(earlier, past[-1]) for earlier in dict.fromkeys(past[-self.reach : -1])]

    def __str__(self) -> str:
        return "chain of second order with skips"


class MaskedSkips(Skips):
    """The same counts, but only the features that the mask of the most recent word keeps vote."""

    def __init__(self, chain: Skips, masks: Mapping[str, Collection[str]]) -> None:
        self.words, self.counts, self.reach = chain.words, chain.counts, chain.reach
        self.masks = {word: frozenset(kept) for word, kept in masks.items()}
        unknown = frozenset(self.masks).union(*self.masks.values()).difference(self.words)
        if unknown:
            raise InputError(f"{min(unknown)!r} stands in a mask, but the {chain} never saw it")

    def features(self, past: Sequence[str]) -> list[Feature]:
        active = super().features(past)
        kept = [feature for feature in active if feature[0] in self.masks.get(feature[1], ())]
        return kept or active

    def mask_matrix(self, recent: Sequence[str] | None = None, earlier: Sequence[str] | None = None) -> Matrix:
        """All masks: a row for each most recent word, 1 where it keeps the feature of an earlier word."""
        recent = self.words if recent is None else tuple(recent)
        earlier = self.words if earlier is None else tuple(earlier)
        values = zero_matrix(len(recent), len(earlier))
        for row, word in zip(values, recent, strict=True):
            row[:] = [other in self.masks.get(word, ()) for other in earlier]
        names = tuple(map(plain_matrix, recent)), tuple(map(plain_matrix, earlier))
        return Matrix(values, *names, "Masks", "most recent word", "earlier word", "kept")

    def __str__(self) -> str:
        return "chain of second order with skips and masks"


def informative(skips: Skips, first: MarkovChain, bits: float = 1.0) -> dict[str, set[str]]:
    """Masks that keep each feature that saves at least so many bits on the training text:

        Σ over what followed it   count · log₂ (p(next | feature) / p(next | the most recent word alone))

    One look at (battery, ran) saves one bit of the coin that `ran` alone has to toss; (check, ran) saves none.
    """
    masks: dict[str, set[str]] = {}
    for (earlier, recent), followers in skips.counts.items():
        told, alone = skips.row((earlier, recent)), first.row((recent,))
        if sum(count * math.log2(told[word] / alone[word]) for word, count in followers.items()) >= bits:
            masks.setdefault(recent, set()).add(earlier)
    return masks
