"""Brown clusters: words that have the same neighbours share a class, found by counting alone. (Brown et al. 1992.)

    classes = brown_classes(ids, vocab_size, 200, end=end)
    classes.of[i]          the class of a token
    classes.members(7)     the tokens of a class, the most frequent first
    classes.bits[7]        its place in the tree of classes: what begins alike lies near

An n-gram of V words has Vⁿ contexts, of C classes only Cⁿ⁻¹: «on monday» says something about «on friday». The classes
should lose as little as they can of what one word's class says about the next one's, their mutual information. The
search is greedy: the C most frequent words begin as one class each; the next word makes one more, and the two whose
merge loses least are merged (`merge_costs`); and so on through all words. In the end the C classes are merged as
well, until one is left: that is the tree.

What we decide: sums run over the classes in view, the margins over the whole text, so that words that have not come yet
count in no pair. Only the `most` frequent tokens are clustered. The others, and those that were never seen, are one
class more, and the end of a text is one by itself; both stand in view from the beginning, and never merge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from jaxtyping import Float64, Int64

from cutaway.arguments import Progress, no_progress
from cutaway.before.ngrams.counts import Ids, NgramCounts, count_ngrams
from cutaway.before.ngrams.merge_costs import MergeCosts
from cutaway.errors import ConfigError, InputError

MOST = 10_000
BORDER, RARE, FIRST = 0, 1, 2  # slots: ends and beginnings of texts, words that are not clustered, the clusters


@dataclass(frozen=True, eq=False)
class WordClasses:
    """`of` and `times`: the class of each token, and how often it was seen. `bits[c]` are the turns from the root of
    the tree to class c; classes are numbered in that order, and those that are not of the tree come last, with "".
    `information`: how many bits one token's class says about the next one's."""

    of: Int64[np.ndarray, " vocab"]
    times: Int64[np.ndarray, " vocab"]
    bits: tuple[str, ...]
    information: float

    def members(self, number: int | np.integer) -> list[int]:
        """The tokens of a class, the most frequent first."""
        its = np.flatnonzero(self.of == number)
        return its[np.argsort(-self.times[its], kind="stable")].tolist()

    def nearest(self, number: int | np.integer) -> list[int]:
        """The other classes, the nearest in the tree first."""

        def shared(other: int) -> int:
            pairs = zip(self.bits[number], self.bits[other], strict=False)
            return next((i for i, (a, b) in enumerate(pairs) if a != b), 0)

        return sorted((c for c, bits in enumerate(self.bits) if bits and c != number), key=lambda c: -shared(c))


def brown_classes(
    ids: Ids,
    vocab_size: int,
    classes: int,
    *,
    end: int | None = None,
    most: int = MOST,
    progress: Progress = no_progress,
) -> WordClasses:
    """Clusters the `most` frequent tokens into `classes` classes. Each `end` ends a text."""
    if classes < 1:
        raise ConfigError(f"classes={classes}: at least one is made")
    if most < classes:
        raise ConfigError(f"most={most}: fewer words than the classes={classes} that they should fill")
    text = _Text(count_ngrams(ids, vocab_size, 2, end=end), most)
    if len(text.words) < classes:
        raise InputError(
            f"classes={classes}: the text has {len(text.words):,} different tokens; give it more text, or ask for fewer"
        )
    window, slot_of = _started(text, classes)
    later, all_merges = text.words[classes:], len(text.words) - 1
    empty = FIRST + classes
    for done, word in enumerate(later):
        progress(done, all_merges)
        slot_of[word] = empty
        window.add(empty, *text.beside(word, slot_of, len(window.pairs)))
        kept, empty, loss = window.best()
        window.merge(kept, empty, loss)
        slot_of[slot_of == empty] = kept
    information = window.information / text.total / log(2)
    bits = _tree(window, progress=lambda done: progress(len(later) + done, all_merges))
    progress(all_merges, all_merges)
    return _numbered(text, slot_of[:vocab_size], bits, end, information)


class _Text:
    """The pairs of a text, by their left and by their right word; <sos> is the left face of the end."""

    def __init__(self, counts: NgramCounts, most: int) -> None:
        pairs = counts.levels[1]
        self.left, self.right = np.divmod(np.asarray(pairs.keys), counts.base)
        self.counts = np.asarray(pairs.counts).astype(np.float64)
        self.total = float(self.counts.sum())
        words = np.arange(counts.base + 1)
        self.by_right = np.argsort(self.right, kind="stable")
        self.begins = np.searchsorted(self.left, words), np.searchsorted(self.right[self.by_right], words)
        self.times = counts.levels[0].counts[:-1].astype(np.int64)
        by_count = np.argsort(-self.times, kind="stable")
        chosen = [int(word) for word in by_count[: (self.times > 0).sum()] if word != counts.end]
        self.words, self.rare = chosen[:most], chosen[most:]
        self.borders = [counts.vocab_size] if counts.end is None else [counts.vocab_size, counts.end]

    def beside(
        self, word: int, slot_of: Int64[np.ndarray, " word"], size: int
    ) -> tuple[Float64[np.ndarray, " slot"], Float64[np.ndarray, " slot"], float, float]:
        """How often a word stands behind and before those of each slot; and in how many pairs it is left, and right."""
        behind = slice(*self.begins[0][word : word + 2])
        before = self.by_right[slice(*self.begins[1][word : word + 2])]
        return (
            _by_slot(slot_of[self.left[before]], self.counts[before], size),
            _by_slot(slot_of[self.right[behind]], self.counts[behind], size),
            float(self.counts[behind].sum()),
            float(self.counts[before].sum()),
        )


def _by_slot(slots: np.ndarray, counts: np.ndarray, size: int) -> Float64[np.ndarray, " slot"]:
    """Sums counts by slot, without those of words that have no slot yet (−1)."""
    return np.bincount(slots + 1, counts, size + 1)[1:].astype(np.float64)  # of nothing it would be of whole numbers


def _started(text: _Text, classes: int) -> tuple[MergeCosts, Int64[np.ndarray, " word"]]:
    """The most frequent words in a slot each, and one slot more, which is empty; and the slot of each word."""
    size = FIRST + classes + 1
    slot_of = np.full(len(text.begins[0]) - 1, -1)
    slot_of[text.borders], slot_of[text.rare] = BORDER, RARE
    slot_of[text.words[:classes]] = np.arange(FIRST, FIRST + classes)
    one, other = slot_of[text.left], slot_of[text.right]
    both = (one >= 0) & (other >= 0)
    pairs = _by_slot(one[both] * size + other[both], text.counts[both], size * size).reshape(size, size)
    margins = _by_slot(one, text.counts, size), _by_slot(other, text.counts, size)
    may_merge = np.arange(size) >= FIRST
    may_merge[-1] = False
    return MergeCosts(pairs, *margins, may_merge, text.total), slot_of


def _tree(window: MergeCosts, progress: Callable[[int], None]) -> dict[int, str]:
    """Merges the clusters until one is left; returns the path to each slot from the root."""
    slots = np.flatnonzero(window.may_merge).tolist()
    merges: list[tuple[int, int]] = []
    while len(merges) < len(slots) - 1:
        progress(len(merges))
        a, b, loss = window.best()
        window.merge(a, b, loss)
        merges.append((a, b))
    bits = {merges[-1][0] if merges else slots[0]: ""}
    for a, b in reversed(merges):
        bits[a], bits[b] = bits[a] + "0", bits[a] + "1"
    return bits


def _numbered(
    text: _Text, slots: Int64[np.ndarray, " vocab"], bits: dict[int, str], end: int | None, information: float
) -> WordClasses:
    """Slots become classes: in the order of the tree, then the rare and the unseen, then the end."""
    order = sorted(bits, key=bits.__getitem__)
    number = np.full(slots.max() + 2, -1)
    number[order] = np.arange(len(order))
    of, names = number[slots], [bits[slot] for slot in order]  # a slot of −1, and RARE, are none yet
    for others in (np.flatnonzero((of < 0) & (np.arange(len(of)) != end)), [] if end is None else [end]):
        if len(others):
            of[others] = len(names)
            names.append("")
    return WordClasses(of, text.times, tuple(names), information)
