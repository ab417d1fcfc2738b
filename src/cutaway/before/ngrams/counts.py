"""How often each n-gram stands in a text: by sorting, so that neither the text nor the counts need to fit in memory.

An n-gram is a shorter n-gram and one more token. Numbered in sorted order, it is one integer whatever its order:

    key of (h, w) = number of h · (V + 1) + w          the number of a single token is its id

All that follows h stands side by side, and a text of numbers becomes the text of the next order by one sort. Chunks of
the text are sorted by themselves, and merged range by range of the keys.

A text begins with a token of its own, <sos>, which is only looked at, never predicted: the id V. n-grams that reach
back over a beginning are not counted. <sos> is the largest id, so the n-grams that begin with it are the last ones.
"""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Integer, UInt32

from cutaway.before.ngrams.count_arrays import SCRATCH, CountArrays, refuse_others
from cutaway.errors import CheckpointError, ConfigError, InputError

CHUNK = 1 << 23  # tokens that a thread sorts at once: some 400 MB
THREADS = min(4, os.cpu_count() or 1)
HIGHEST = 7
NONE = np.uint32(0xFFFFFFFF)  # the number of what is no n-gram

Ids = Integer[np.ndarray, " token"]
Stream = UInt32[np.ndarray, " place"]  # ids, or numbers of n-grams, with the beginnings of texts among them


class Level(NamedTuple):
    """All n-grams of one order. `suffix` is the number of each without its first token, one order below."""

    keys: Int64[np.ndarray, " ngram"]
    counts: UInt32[np.ndarray, " ngram"]
    suffix: UInt32[np.ndarray, " ngram"]


@dataclass(frozen=True)
class NgramCounts:
    """`levels[n - 1]` are the n-grams of order n; those of order 1 are all ids, seen or not, and <sos>. `folder` is
    where they lie, None for the memory."""

    vocab_size: int
    end: int | None
    levels: list[Level]
    folder: Path | None = None

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def base(self) -> int:
        return self.vocab_size + 1

    def begun(self, order: int) -> int:
        """The number of the first n-gram that begins with <sos>, as do all after it."""
        first = self.vocab_size
        for level in self.levels[1:order]:
            first = int(np.searchsorted(level.keys, first * self.base))
        return first

    @classmethod
    def open(cls, folder: Path) -> "NgramCounts":
        """The counts that `count_ngrams(…, folder=folder)` wrote, mapped."""
        shelf = CountArrays(folder)
        numbers = shelf.numbers("counts")
        try:
            order, vocab_size, end = int(numbers["order"]), int(numbers["vocab_size"]), numbers["end"]
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{folder / 'counts.json'} should give order, vocab_size and end") from None
        kinds = {"keys": np.int64, "counts": np.uint32, "suffix": np.uint32}
        found = [Level(*(shelf.get(f"{kind}{n}", dtype) for kind, dtype in kinds.items())) for n in range(1, order + 1)]
        return cls(vocab_size, end, found, folder)


def count_ngrams(
    ids: Ids, vocab_size: int, order: int, *, end: int | None = None, folder: Path | None = None, chunk: int = CHUNK
) -> NgramCounts:
    """Counts the n-grams of all orders up to `order`. `ids` may be mapped; each `end` ends a text.

    With a folder the counts are files there, over those of an earlier call, and so is what is needed on the way;
    without one all stays in memory.
    """
    if not 1 <= order <= HIGHEST:
        raise ConfigError(f"order={order}: n-grams of 1 to {HIGHEST} tokens are counted")
    if chunk < 1:
        raise ConfigError(f"chunk={chunk}: at least one token is sorted at once")
    if not 1 <= vocab_size < 1 << 31 or len(ids) >= NONE >> 1:
        raise ConfigError(f"vocab_size={vocab_size}, {len(ids):,} tokens: at most two thousand million of each")
    if not len(ids):
        raise InputError("there are no tokens to count: the text is empty")
    if folder is not None:
        refuse_others(folder)
    shelf = CountArrays(folder)
    shelf.unseal("counts", "ngrams")
    with ExitStack() as stack:
        scratch = CountArrays(
            folder and Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH)))
        )
        stream = started(ids, vocab_size, end, scratch, chunk)
        levels, numbers = [_first(stream, vocab_size, shelf, chunk)], stream
        for n in range(2, order + 1):
            level, numbers = _next(n, stream, numbers, vocab_size, shelf, scratch, chunk)
            levels.append(level)
    shelf.seal("counts", {"order": order, "vocab_size": vocab_size, "end": end})
    return NgramCounts(vocab_size, end, levels, folder)


def started(
    ids: Ids, vocab_size: int, end: int | None, scratch: CountArrays | None = None, chunk: int = CHUNK
) -> Stream:
    """The ids with <sos> before each text."""
    pieces = range(0, len(ids), chunk)
    texts = 1 if end is None else 1 + sum(int((ids[lo : lo + chunk] == end).sum()) for lo in pieces)
    texts -= bool(end is not None and len(ids) and ids[-1] == end)
    stream = (scratch or CountArrays()).make("stream", np.uint32, len(ids) + max(texts, 1))
    stream[0], at = vocab_size, 1
    for lo in pieces:
        piece = ids[lo : lo + chunk]
        if piece.min() < 0 or piece.max() >= vocab_size:
            odd = piece[(piece < 0) | (piece >= vocab_size)][0]
            raise InputError(f"the id {odd} is not in 0 … {vocab_size - 1}: vocab_size={vocab_size}")
        piece = piece.astype(np.uint32)
        if end is not None:
            piece = np.insert(piece, np.flatnonzero(piece == end) + 1, vocab_size)
        room = stream[at : at + len(piece)]
        room[:] = piece[: len(room)]
        at += len(room)
    return stream


def _first(stream: Stream, vocab_size: int, shelf: CountArrays, chunk: int) -> Level:
    """The counts of order 1, where the number of a token is its id."""
    size = vocab_size + 1
    counts = np.zeros(size, np.uint32)
    for lo in range(0, len(stream), chunk):
        counts += np.bincount(stream[lo : lo + chunk], minlength=size).astype(np.uint32)
    found: dict[str, np.ndarray] = {"keys": np.arange(size), "counts": counts, "suffix": np.zeros(size, np.uint32)}
    return Level(**{kind: shelf.put(f"{kind}1", array) for kind, array in found.items()})


class _Piece(NamedTuple):
    """The n-grams of one chunk of text: sorted keys, their counts, and their numbers after merging."""

    keys: np.ndarray
    counts: np.ndarray
    numbers: np.ndarray


def _next(
    n: int, stream: Stream, before: Stream, vocab_size: int, shelf: CountArrays, scratch: CountArrays, chunk: int
) -> tuple[Level, Stream]:
    """Counts order n from the numbers of order n − 1 at each position; also returns those of order n."""
    numbers = scratch.make(f"numbers{n}", np.uint32, len(stream))
    numbers[0] = NONE
    chunks = [slice(lo, min(lo + chunk, len(stream))) for lo in range(1, len(stream), chunk)]

    def sort(i: int) -> _Piece:
        here = chunks[i]
        context, last = before[here.start - 1 : here.stop - 1], stream[here]
        real = (context != NONE) & (last != vocab_size)
        keys = context[real].astype(np.int64) * (vocab_size + 1) + last[real]
        keys, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        numbers[here] = NONE
        numbers[here][real] = inverse
        return _Piece(
            scratch.put(f"keys{i}", keys),
            scratch.put(f"counts{i}", counts.astype(np.uint32)),
            scratch.make(f"merged{i}", np.uint32, len(keys)),
        )

    def number(i: int) -> None:
        here = numbers[chunks[i]]
        real = here != NONE
        here[real] = found = pieces[i].numbers[here[real]]
        suffix[found] = before[chunks[i]][real]  # all places of an n-gram say the same

    with ThreadPoolExecutor(THREADS) as pool:
        pieces = list(pool.map(sort, range(len(chunks))))
        keys, counts = _merged(n, pieces, shelf, scratch, chunk)
        suffix = shelf.make(f"suffix{n}", np.uint32, len(keys))
        list(pool.map(number, range(len(chunks))))
    scratch.drop(f"{kind}{i}" for i in range(len(pieces)) for kind in ("keys", "counts", "merged"))
    scratch.drop([f"numbers{n - 1}"])
    found = {"keys": keys, "counts": counts, "suffix": suffix}
    return Level(**{kind: shelf.done(f"{kind}{n}", array) for kind, array in found.items()}), numbers


def _merged(
    n: int, pieces: list[_Piece], shelf: CountArrays, scratch: CountArrays, chunk: int
) -> tuple[np.ndarray, np.ndarray]:
    """Merges the keys and counts of all pieces, and numbers the keys of each piece."""
    done: list[tuple[np.ndarray, np.ndarray]] = []
    total = 0
    for i, slices in enumerate(_ranges([piece.keys for piece in pieces], chunk)):
        parts = list(zip(pieces, slices, strict=True))
        keys, inverse = np.unique(np.concatenate([p.keys[part] for p, part in parts]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([p.counts[part] for p, part in parts]), len(keys))
        at = 0
        for piece, part in parts:
            size = part.stop - part.start
            piece.numbers[part] = inverse[at : at + size] + total
            at += size
        done.append((scratch.put(f"range{i}", keys), scratch.put(f"times{i}", counts.astype(np.uint32))))
        total += len(keys)
    all_keys, all_counts = (shelf.make(f"keys{n}", np.int64, total), shelf.make(f"counts{n}", np.uint32, total))
    at = 0
    for keys, counts in done:
        all_keys[at : at + len(keys)], all_counts[at : at + len(keys)] = keys, counts
        at += len(keys)
    scratch.drop(f"{kind}{i}" for i in range(len(done)) for kind in ("range", "times"))
    return all_keys, all_counts


def _ranges(sorted_keys: list[np.ndarray], chunk: int) -> Iterator[list[slice]]:
    """Slices of the lists with the same range of keys, together about `chunk` keys."""
    step = max(chunk // (8 * max(len(sorted_keys), 1)), 1)  # fine enough that a range is seldom much larger
    sample = np.sort(np.concatenate([keys[::step] for keys in sorted_keys]))
    cuts = np.unique(sample[:: max(chunk // step, 1)][1:])
    bounds = [[0, *np.searchsorted(keys, cuts).tolist(), len(keys)] for keys in sorted_keys]
    for i in range(len(cuts) + 1):
        yield [slice(bound[i], bound[i + 1]) for bound in bounds]
