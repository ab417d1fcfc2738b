"""Buckets: batches of sequences of similar length, which need little padding.

    buckets = Buckets([lengths], tokens=8192)
    buckets.rows_of(1000)             # batch 1,000: its bucket, and which examples are in it

Lengths are rounded up to a ladder of widths, and similar widths are joined until few are left: each shape is compiled,
or recorded as a CUDA graph, only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutaway.data.order import BATCH_ORDER, ROW_ORDER, Indices, shuffled
from cutaway.errors import InputError

# Widths of rows. Sentences are short: multiples of 8 would fill 74 % of a batch of everyday pairs, these fill 89 %.
LADDER = (4, *range(6, 25, 2), 28, 32, 40, 48, 64, 80, 96, 128, 192, 256)
MOST_SHAPES = 16
NEVER = np.iinfo(np.int64).max  # the cost of shapes that cannot be joined


@dataclass(frozen=True)
class Bucket:
    """Examples that are padded to the same widths, `rows` of them per batch."""

    widths: tuple[int, ...]
    rows: int
    examples: Indices

    @property
    def n_batches(self) -> int:
        return -(-len(self.examples) // self.rows)


class Buckets:
    """Batches of at most `tokens` tokens, padding included, from examples whose columns have these lengths.

    A bucket's last batch is filled up with empty rows (example −1), so that each bucket has a single shape.
    """

    def __init__(
        self,
        lengths: Sequence[Indices],
        *,
        tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        multiple: int = 1,
        most_rows: int | None = None,
        most_shapes: int = MOST_SHAPES,
        widest: Sequence[int | None] = (),
    ) -> None:
        self.seed, self.shuffle = seed, shuffle
        self.n_examples = len(lengths[0])
        if self.n_examples == 0:
            raise InputError("there are no examples to make batches of")
        table = np.stack(lengths, axis=1)
        limits = np.array([width or 1 << 62 for width in widest or [None] * len(lengths)])
        self.buckets = _buckets(table, limits, tokens, multiple, most_rows, most_shapes)
        self.ends = np.cumsum([bucket.n_batches for bucket in self.buckets])
        self.steps = int(self.ends[-1])

    def rows_of(self, step: int) -> tuple[Bucket, Indices]:
        """The bucket of a step and the examples in its rows, −1 where a row is empty."""
        epoch, place = divmod(step, self.steps)
        if self.shuffle:
            place = int(shuffled(np.array([place]), self.steps, self.seed, BATCH_ORDER, epoch)[0])
        b = int(np.searchsorted(self.ends, place, side="right"))
        bucket = self.buckets[b]
        within = place - (int(self.ends[b - 1]) if b else 0)
        n = len(bucket.examples)
        row = np.arange(within * bucket.rows, (within + 1) * bucket.rows)
        there = row < n
        if self.shuffle:
            row[there] = shuffled(row[there], n, self.seed, ROW_ORDER, epoch, b)
        examples = np.full(bucket.rows, -1, dtype=np.int64)
        examples[there] = bucket.examples[row[there]]
        return bucket, examples

    @property
    def padded(self) -> int:
        """The tokens of an epoch's batches, padding included."""
        return sum(bucket.n_batches * bucket.rows * sum(bucket.widths) for bucket in self.buckets)


def _buckets(
    lengths: NDArray[np.int64], limits: Indices, tokens: int, multiple: int, most_rows: int | None, most_shapes: int
) -> list[Bucket]:
    widest = lengths.sum(axis=1).max()
    if widest > tokens:
        raise InputError(
            f"an example of {widest} tokens does not fit into a batch of {tokens}: allow larger batches, or truncate it"
        )
    padded = np.minimum(_rounded_up(lengths), limits)
    grid = (int(padded.max()) + 1,) * padded.shape[1]  # a shape as one number: np.unique sorts rows ten times slower
    numbers, which, counts = np.unique(np.ravel_multi_index(padded.T, grid), return_inverse=True, return_counts=True)
    shapes = np.stack(np.unravel_index(numbers, grid), axis=1)
    shapes, group = np.unique(join_shapes(shapes, counts, most_shapes), axis=0, return_inverse=True)
    of_example = group.ravel()[which]
    buckets = []
    for number, widths in enumerate(shapes.tolist()):
        examples = np.flatnonzero(of_example == number)
        rows = max(1, tokens // sum(widths))
        rows = min(rows, most_rows or rows, -(-len(examples) // multiple) * multiple)
        buckets.append(Bucket(tuple(widths), max(multiple, rows // multiple * multiple), examples))
    return buckets


def _rounded_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The next width of the ladder; beyond it, the next multiple of 64."""
    ladder = np.array(LADDER)
    rung = np.searchsorted(ladder, lengths)
    return np.where(rung < len(ladder), ladder[np.minimum(rung, len(ladder) - 1)], -(-lengths // 64) * 64)


def join_shapes(shapes: NDArray[np.int64], counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """For each shape the one that it is padded to: the cheapest pair is joined until `most` are left.

    Every shape stores its cheapest partner, so that a step looks at a few shapes and not at all pairs.
    """
    shapes, counts = shapes.copy(), counts.copy()  # a count of 0: joined with another
    order = (int(shapes.max()) + 1) ** np.arange(shapes.shape[1])[::-1]
    sizes, rank = shapes.sum(axis=1), shapes @ order
    group = np.arange(len(shapes))
    partner, cost = np.zeros_like(group), np.full(len(shapes), NEVER)

    def padding(i: int) -> Indices:
        """The cost of joining this shape with each other one."""
        both = np.maximum(shapes, shapes[i]).sum(axis=1)
        found = counts * (both - sizes) + counts[i] * (both - sizes[i])
        return np.where(counts > 0, found, NEVER)

    def cheapest(costs: Indices) -> int:
        """Of several, the first in the order of shapes."""
        least = np.flatnonzero(costs == costs.min())
        return int(least[rank[least].argmin()])

    def look(i: int) -> None:
        costs = np.where(rank > rank[i], padding(i), NEVER)
        partner[i] = cheapest(costs)
        cost[i] = costs[partner[i]]

    for i in range(len(shapes)):
        look(i)
    while np.count_nonzero(counts) > most:
        a = cheapest(cost)
        b = int(partner[a])
        joined = np.maximum(shapes[a], shapes[b])
        n, counts[a], counts[b] = counts[a] + counts[b], 0, 0
        same = np.flatnonzero((counts > 0) & (rank == joined @ order))
        into = int(same[0]) if len(same) else b
        shapes[into], sizes[into], rank[into] = joined, joined.sum(), joined @ order
        counts[into] += n
        group[np.isin(group, [a, b])] = into
        cost[counts == 0] = NEVER
        look(into)
        for i in np.flatnonzero((counts > 0) & np.isin(partner, [a, b, into])).tolist():  # theirs is gone, or has grown
            look(i)
        costs = padding(into)
        nearer = (costs < cost) | ((costs == cost) & (costs < NEVER) & (rank[into] < rank[partner]))
        nearer &= rank < rank[into]
        partner[nearer], cost[nearer] = into, costs[nearer]
    return shapes[group]
