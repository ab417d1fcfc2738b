"""Learn the pieces of a Unigram vocabulary and their probabilities (Kudo 2018, section 3.2).

A word is split so that the product of its pieces' probabilities is largest. Begin with many more pieces than needed;
split all words, and estimate the probability of a piece by its share; remove the pieces whose absence costs least,
n · (log p(piece) − log p(the best way without it)); repeat until as many are left as needed.

Two deviations from the paper. Only the best segmentation of each word is counted, where the paper weights all of them
by their probability: so the counts are integers, and the same text gives the same pieces. (The library's trainer adds
fractions in the order of a hash map, which differs between processes, and so do its scores.) And the first pieces are
all frequent substrings, except those that occur only inside one longer, for which the paper sorts suffixes.
"""

import math
from collections.abc import Mapping, Set

from tokenizers import Tokenizer as Backend
from tokenizers import models

from cutaway.tokens.word_counts import Counts

LONGEST = 16  # characters of a piece
CANDIDATES = 10  # initially, per piece of the final vocabulary
KEPT = 0.75  # share of the pieces that survive each round
SETTLE = 2  # how often words are split and counted before pieces are removed
DIGITS = 6  # of a score: coarser than the differences between machines
BATCH = 20_000

Scores = dict[str, float]  # the logarithm of each piece's probability


def learn_pieces(words: Counts, alphabet: Mapping[str, int], n_pieces: int, never: Set[str] = frozenset()) -> Scores:
    """At most `n_pieces` pieces with their scores, the likeliest first; every character of the alphabet is one.

    `never` must not become pieces: the special tokens.
    """
    more = n_pieces - len(alphabet)  # beside the characters
    counts = dict(alphabet) | _candidates(words, alphabet, CANDIDATES * more, never)
    while (longer := len(counts) - len(alphabet)) > more:
        for _ in range(SETTLE):
            counts = _best_cuts(words, _scores(counts))
        used = sum(n > 0 for piece, n in counts.items() if piece not in alphabet)
        counts = _without_cheapest(counts, alphabet, max(more, min(used, int(KEPT * longer))))
    scores = _scores(_best_cuts(words, _scores(counts)))
    return dict(sorted(scores.items(), key=lambda entry: (-entry[1], entry[0])))


def _candidates(words: Counts, alphabet: Mapping[str, int], most: int, never: Set[str]) -> dict[str, int]:
    """The substrings of two characters and more that cover most of the text, with their numbers."""
    found = _substrings(words, alphabet)
    covering = sorted(found.keys() - never, key=lambda piece: (-found[piece] * len(piece), piece))
    return {piece: found[piece] for piece in covering[:most]}


def _substrings(words: Counts, alphabet: Mapping[str, int]) -> dict[str, int]:
    """Every substring that occurs at least twice, except those that occur only inside the same longer one."""
    found: dict[str, int] = {}
    shorter: Mapping[str, int] = alphabet  # what occurs once cannot be extended
    for length in range(2, LONGEST + 1):
        counts: dict[str, int] = {}
        for word, n in words:
            for start in range(len(word) - length + 1):
                part = word[start : start + length]
                if part[:-1] in shorter and part[-1] in alphabet:
                    counts[part] = counts.get(part, 0) + n
        shorter = {part: n for part, n in counts.items() if n > 1}
        for part, n in shorter.items():
            for inner in (part[:-1], part[1:]):
                if found.get(inner) == n:
                    del found[inner]
        found |= shorter
        words = [(word, n) for word, n in words if len(word) > length]
    return found


def _scores(counts: Mapping[str, int]) -> Scores:
    """log p; a piece that was never used counts as one, so that it can return when others are removed."""
    total = math.log(sum(max(n, 1) for n in counts.values()))
    return {piece: round(math.log(max(n, 1)) - total, DIGITS) for piece, n in counts.items()}


def _best_cuts(words: Counts, scores: Scores) -> dict[str, int]:
    """How often each piece is used in the best segmentations of all words."""
    pieces = list(scores)
    backend = Backend(models.Unigram([("", 0.0), *scores.items()], unk_id=0))
    counts = [0] * (len(pieces) + 1)
    for first in range(0, len(words), BATCH):
        batch = words[first : first + BATCH]
        cuts = backend.encode_batch_fast([word for word, _ in batch], add_special_tokens=False)
        for cut, (_, n) in zip(cuts, batch, strict=True):
            for id in cut.ids:
                counts[id] += n
    return dict(zip(pieces, counts[1:], strict=True))


def _without_cheapest(counts: dict[str, int], alphabet: Mapping[str, int], keep: int) -> dict[str, int]:
    """All characters, and the `keep` pieces whose absence would cost most."""
    scores = _scores(counts)
    costs = {piece: n * (scores[piece] - best_score(piece, scores)) for piece, n in counts.items() if len(piece) > 1}
    dearest = sorted(costs, key=lambda piece: (-round(costs[piece], DIGITS), piece))[:keep]
    return {piece: counts[piece] for piece in (*alphabet, *dearest)}


def best_score(piece: str, scores: Scores) -> float:
    """The score of the best segmentation of a piece into others."""
    best = [0.0] + [-math.inf] * len(piece)
    for start in range(len(piece)):
        so_far = best[start]
        for stop in range(start + 1, len(piece) + (start > 0)):  # from the beginning, not to the end: that is the piece
            score = scores.get(piece[start:stop])
            if score is not None and so_far + score > best[stop]:
                best[stop] = so_far + score
    return best[-1]
