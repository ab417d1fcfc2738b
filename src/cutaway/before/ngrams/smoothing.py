"""Counts → probabilities, also of what was never seen. (Chen & Goodman 1999, An empirical study of smoothing.)

A discount D is taken from each count, and what that leaves goes to all words (interpolation) or to those that were
not seen here (back-off), as the next shorter context h' divides it.

    Kneser–Ney    p(w | h) = (a(hw) − D) / Σ a(h·) + weight(h) · p(w | h'),     weight(h) = Σ D / Σ a(h·)
                  a: the count; below the highest order, the number of different tokens before hw. «Francisco» is
                  frequent, but only behind «San». n-grams that begin with <sos> keep their count: nothing is before it.
    back-off      p(w | h) = (c(hw) − D) / Σ c(h·), or weight(h) · p(w | h') where hw was not seen. Katz's scheme, with
                  the discounts below in place of Good and Turing's.

One token alone is interpolated with the uniform distribution in both. Discounts of each order, for counts of 1, 2 and
3 or more, from how many n-grams have the count r, n_r (modified Kneser–Ney):

    Y = n₁ / (n₁ + 2 n₂)      D₁ = 1 − 2 Y n₂/n₁      D₂ = 2 − 3 Y n₃/n₂      D₃ = 3 − 4 Y n₄/n₃

Where one of n₁ … n₄ is 0 (a short text, or a few characters that are all frequent), or a discount comes out as 0 or
less, that order takes ½, 1, 1½, and `model.about` says so. Where all tokens were seen behind h, back-off takes no
discount: nobody is left to give it to.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, UInt32

from cutaway.before.ngrams.count_arrays import CountArrays
from cutaway.before.ngrams.counts import CHUNK, Ids, NgramCounts, count_ngrams
from cutaway.before.ngrams.ngram import NGramModel, NgramTable
from cutaway.before.options import Smoothing
from cutaway.errors import ConfigError

SMOOTHINGS = tuple(map(str, Smoothing))
Discounts = tuple[float, float, float]  # of counts of 1, of 2, and of 3 or more
FALLBACK: Discounts = (0.5, 1.0, 1.5)

Each = Float64[np.ndarray, " ngram"]
EachContext = Float64[np.ndarray, " context"]


def train_ngrams(
    ids: Ids,
    vocab_size: int,
    order: int,
    *,
    end: int | None = None,
    smoothing: str = "kneser-ney",
    folder: Path | None = None,
    chunk: int = CHUNK,
) -> NGramModel:
    """Count and smooth. With a folder the model is there as files, which `NGramModel.open` maps again; its counts are
    not kept."""
    _check(smoothing)
    counts = count_ngrams(ids, vocab_size, order, end=end, folder=folder, chunk=chunk)
    model, shelf = smoothed(counts, smoothing, chunk), CountArrays(folder)
    shelf.unseal("counts")
    shelf.drop(f"{kind}{n}" for kind in ("counts", "suffix") for n in range(1, order + 1))
    return model


def smoothed(counts: NgramCounts, smoothing: str = "kneser-ney", chunk: int = CHUNK) -> NGramModel:
    """The model of these counts, in the same folder or in memory."""
    _check(smoothing)
    shelf = CountArrays(counts.folder)
    shelf.unseal("ngrams")
    tables: list[NgramTable] = []
    short = []
    lower = np.full(1, 1 / counts.vocab_size)  # below order 1: any token
    for n, level in enumerate(counts.levels, 1):
        times = adjusted(counts, n, chunk) if smoothing == "kneser-ney" else _raw(counts, n)
        discounts = discounts_of(times)
        if discounts is None:
            short.append(str(n))
        weigh = _interpolated if smoothing == "kneser-ney" or n == 1 else _backed_off
        steps, size = np.array([0.0, *(discounts or FALLBACK)]), len(level.keys)
        p, log_p = np.zeros(size), shelf.make(f"log_p{n}", np.float32, size)
        for which, context, contexts in _groups(level.keys, counts.base, chunk):
            seen, below = times[which], lower[level.suffix[which]]
            if n == 1:
                below[counts.vocab_size] = 0.0  # <sos> never comes
            p[which], weights = weigh(seen, steps[np.minimum(seen, 3)], below, context, counts.vocab_size)
            with np.errstate(divide="ignore"):
                log_p[which] = np.log(p[which])
            if tables:
                tables[-1].log_weight[contexts] = np.log(weights)
        log_weight = shelf.make(f"log_weight{n}", np.float32, size if n < counts.order else 0)
        log_weight[:] = 0.0
        tables.append(NgramTable(level.keys, shelf.done(f"log_p{n}", log_p), log_weight))
        lower = p
    about = smoothing + (f", discounts ½, 1, 1½ for order {', '.join(short)}" if short else "")
    model = NGramModel(counts.vocab_size, counts.end, tables, about)
    model.seal(shelf)
    return model


def _check(smoothing: str) -> None:
    if smoothing not in SMOOTHINGS:
        raise ConfigError(f"smoothing={smoothing!r}: there is {' and '.join(SMOOTHINGS)}")


def _raw(counts: NgramCounts, order: int) -> UInt32[np.ndarray, " ngram"]:
    times = counts.levels[order - 1].counts
    return np.append(times[:-1], np.uint32(0)) if order == 1 else times  # <sos> never comes


def adjusted(counts: NgramCounts, order: int, chunk: int = CHUNK) -> UInt32[np.ndarray, " ngram"]:
    """Kneser–Ney counts: below the highest order, the number of different tokens before an n-gram."""
    if order == counts.order:
        return _raw(counts, order)
    level, longer = counts.levels[order - 1], counts.levels[order].suffix
    times = np.zeros(len(level.keys), np.uint32)
    for lo in range(0, len(longer), chunk):
        times += np.bincount(longer[lo : lo + chunk], minlength=len(times)).astype(np.uint32)
    begun = counts.begun(order)
    times[begun:] = _raw(counts, order)[begun:]
    return times


def discounts_of(times: UInt32[np.ndarray, " ngram"]) -> Discounts | None:
    """D₁, D₂ and D₃ of modified Kneser–Ney; None if there are too few n-grams to estimate them."""
    n1, n2, n3, n4 = (int((times == r).sum()) for r in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return None
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if min(found) > 0 else None


class _Group(NamedTuple):
    """Some n-grams, with all that follows their contexts: where they stand, the context of each (0, 1, …), and which
    contexts these are."""

    which: slice
    context: Int64[np.ndarray, " ngram"]
    contexts: Int64[np.ndarray, " context"]


def _groups(keys: Int64[np.ndarray, " ngram"], base: int, chunk: int) -> Iterator[_Group]:
    """All n-grams, about `chunk` at a time; those with one context stay together."""
    lo = 0
    while lo < len(keys):
        last = int(keys[min(lo + chunk, len(keys)) - 1]) // base
        hi = int(np.searchsorted(keys, (last + 1) * base))
        of = keys[lo:hi] // base
        new = np.diff(of, prepend=-1) > 0
        yield _Group(slice(lo, hi), np.cumsum(new) - 1, of[new])
        lo = hi


def _interpolated(
    times: np.ndarray, taken: Each, below: Each, context: np.ndarray, vocab_size: int
) -> tuple[Each, EachContext]:
    total = np.bincount(context, times)
    weight = np.bincount(context, taken) / total
    return (times - taken) / total[context] + weight[context] * below, weight


def _backed_off(
    times: np.ndarray, taken: Each, below: Each, context: np.ndarray, vocab_size: int
) -> tuple[Each, EachContext]:
    full = np.bincount(context) == vocab_size
    taken = np.where(full[context], 0.0, taken)
    total = np.bincount(context, times)
    left, unseen = np.bincount(context, taken) / total, 1 - np.bincount(context, below)
    return (times - taken) / total[context], np.where(full, 1.0, left / np.where(full, 1.0, unseen))
