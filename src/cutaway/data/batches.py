"""Batches: which examples stand side by side, as a function of the step and of nothing else.

    batches = Windows(corpus, rows=64, seq_len=256, seed=0)
    batches(1000)["text"]             # the 1,000th batch; nothing before it has to be made

A batch is a table of arrays. `Windows` cuts a stream of tokens into rows of one length (language modelling).
`Buckets` puts sequences of about the same length together, so that few places are padded, and fills each batch up to a
budget of tokens. Every example comes once an epoch, in another order in each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cutaway.data.order import Indices, number, shuffled
from cutaway.errors import InputError

Batch = dict[str, NDArray[Any]]

# What a key of the order is used for: no two uses may share their numbers.
WINDOW_ORDER, WINDOW_START, BATCH_ORDER, ROW_ORDER, SEGMENTS, HELD_OUT = range(6)

# Lengths that rows are padded to. Sentences are short: in steps of 8 everyday pairs fill 74 % of their places, so 89 %.
LADDER = (4, *range(6, 25, 2), 28, 32, 40, 48, 64, 80, 96, 128, 192, 256)
MOST_SHAPES = 16


@runtime_checkable
class Sequences(Protocol):
    """Token sequences one after another: what a corpus is."""

    @property
    def ids(self) -> NDArray[Any]: ...
    @property
    def starts(self) -> Indices: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Source(Protocol):
    """Where batches come from."""

    steps: int  # an epoch's
    n_examples: int

    def __call__(self, step: int) -> Batch: ...


class Windows:
    """Rows of `seq_len` tokens and the one after them, from all documents laid end to end.

    Each epoch cuts the stream at other places. Where a row holds the border of two documents, `document` says which
    token belongs to which; a batch without any border does not have it.
    """

    def __init__(
        self,
        corpus: Sequences,
        *,
        rows: int,
        seq_len: int,
        seed: int = 0,
        shuffle: bool = True,
        borders: bool = True,
    ) -> None:
        self.corpus, self.rows, self.seq_len, self.seed = corpus, rows, seq_len, seed
        self.shuffle, self.borders = shuffle, borders and len(corpus) > 1
        self.slack = (len(corpus.ids) - 1) % seq_len + 1  # how far the first cut may move, and one
        self.n_examples = (len(corpus.ids) - self.slack) // seq_len
        if self.n_examples < 1:
            raise InputError(
                f"{len(corpus.ids):,} tokens of text are too few for one row of seq_len={seq_len} and the token after"
                f" it: give more text or a smaller seq_len"
            )
        self.steps = -(-self.n_examples // rows)

    def starts(self, step: int) -> Indices:
        """The first token of each row of a step; a row that begins another epoch is cut as that epoch is."""
        place = np.arange(step * self.rows, (step + 1) * self.rows)
        if not self.shuffle:
            return place[place < self.n_examples] * self.seq_len
        epoch, place = np.divmod(place, self.n_examples)
        start = np.empty_like(place)
        for e in np.unique(epoch).tolist():
            of_epoch = epoch == e
            window = shuffled(place[of_epoch], self.n_examples, self.seed, WINDOW_ORDER, e)
            start[of_epoch] = window * self.seq_len + number(self.slack, self.seed, WINDOW_START, e)
        return start

    def __call__(self, step: int) -> Batch:
        start = self.starts(step)
        index = start[:, None] + np.arange(self.seq_len + 1)
        batch: Batch = {"text": self.corpus.ids[index].astype(np.int64)}
        if self.borders:
            first = np.searchsorted(self.corpus.starts, start, side="right")
            last = np.searchsorted(self.corpus.starts, start + self.seq_len, side="right")
            if (first != last).any():
                batch["document"] = np.searchsorted(self.corpus.starts, index, side="right")
        return batch


@dataclass(frozen=True)
class Bucket:
    """Examples that are padded to the same widths, `rows` of them to a batch."""

    widths: tuple[int, ...]
    rows: int
    examples: Indices

    @property
    def n_batches(self) -> int:
        return -(-len(self.examples) // self.rows)


class Buckets:
    """Batches of at most `tokens` places, from examples whose columns have these lengths.

    A bucket's last batch is filled up with empty rows (example −1), so that each bucket has one shape for ever.
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
        """The places of an epoch's batches, padding included."""
        return sum(bucket.n_batches * bucket.rows * sum(bucket.widths) for bucket in self.buckets)


def _buckets(
    lengths: NDArray[np.int64], limits: Indices, tokens: int, multiple: int, most_rows: int | None, most_shapes: int
) -> list[Bucket]:
    widest = lengths.sum(axis=1).max()
    if widest > tokens:
        raise InputError(f"an example of {widest} tokens does not fit a batch of {tokens}: allow more, or cut it")
    shapes, which = np.unique(np.minimum(_rounded_up(lengths), limits), axis=0, return_inverse=True)
    counts = np.bincount(which.ravel(), minlength=len(shapes))
    group = _merge([tuple(shape) for shape in shapes.tolist()], counts.tolist(), most_shapes)
    buckets = []
    for widths in sorted(set(group)):
        of_shape = np.array([widths == wanted for wanted in group])
        examples = np.flatnonzero(of_shape[which.ravel()])
        rows = max(1, tokens // sum(widths))
        rows = min(rows, most_rows or rows, -(-len(examples) // multiple) * multiple)
        buckets.append(Bucket(widths, max(multiple, rows // multiple * multiple), examples))
    return buckets


def _rounded_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The next rung of the ladder; beyond it, the next multiple of 64."""
    ladder = np.array(LADDER)
    rung = np.searchsorted(ladder, lengths)
    return np.where(rung < len(ladder), ladder[np.minimum(rung, len(ladder) - 1)], -(-lengths // 64) * 64)


def _merge(shapes: list[tuple[int, ...]], counts: list[int], most: int) -> list[tuple[int, ...]]:
    """For each shape the one that it is padded to: the cheapest pair is joined until few enough are left."""
    groups: dict[tuple[int, ...], tuple[int, list[int]]] = {
        shape: (n, [i]) for i, (shape, n) in enumerate(zip(shapes, counts, strict=True))
    }

    def extra(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        both = sum(map(max, a, b))
        return groups[a][0] * (both - sum(a)) + groups[b][0] * (both - sum(b))

    while len(groups) > most:
        known = sorted(groups)
        a, b = min(((a, b) for i, a in enumerate(known) for b in known[i + 1 :]), key=lambda pair: extra(*pair))
        (n_a, in_a), (n_b, in_b) = groups.pop(a), groups.pop(b)
        joined = tuple(map(max, a, b))
        n, members = groups.get(joined, (0, []))
        groups[joined] = (n + n_a + n_b, members + in_a + in_b)
    result = [()] * len(shapes)  # type: list[tuple[int, ...]]
    for shape, (_, members) in groups.items():
        for i in members:
            result[i] = shape
    return result


def padded(corpus: Sequences, examples: Indices, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """These sequences as rows of `width` places, cut or filled with 0, and their lengths; −1 is an empty row."""
    there = np.maximum(examples, 0)
    start = np.asarray(corpus.starts[there])
    length = np.minimum(np.asarray(corpus.starts[there + 1]) - start, width)
    length = np.where(examples < 0, 0, length)
    index = start[:, None] + np.arange(width)
    inside = np.arange(width) < length[:, None]
    rows = corpus.ids[np.where(inside, index, 0)].astype(np.int64)
    return np.where(inside, rows, 0), length


class Examples:
    """Batches of a table: each text column as rows of tokens and their lengths, and the labels.

    `extra` says how many special tokens an objective will add to each column, `longest` where a column is cut.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequences],
        labels: Any = None,
        *,
        tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        extra: Mapping[str, int] | None = None,
        longest: Mapping[str, int] | None = None,
        examples: Indices | None = None,
        multiple: int = 1,
        most_rows: int | None = None,
        most_shapes: int = MOST_SHAPES,
    ) -> None:
        self.columns, self.labels = columns, labels
        self.extra = extra or {}
        self.examples = np.arange(len(next(iter(columns.values())))) if examples is None else examples
        lengths = [self._lengths(name, (longest or {}).get(name)) for name in columns]
        self.buckets = Buckets(
            lengths, tokens=tokens, seed=seed, shuffle=shuffle, multiple=multiple, most_rows=most_rows,
            most_shapes=most_shapes, widest=[(longest or {}).get(name) for name in columns],
        )  # fmt: skip
        self.steps, self.n_examples = self.buckets.steps, self.buckets.n_examples

    def _lengths(self, name: str, longest: int | None) -> Indices:
        """With the special tokens; never 0, because a row needs a place."""
        corpus = self.columns[name]
        length = np.asarray(corpus.starts[self.examples + 1]) - np.asarray(corpus.starts[self.examples])
        length = np.maximum(length + self.extra.get(name, 0), 1)
        return length if longest is None else np.minimum(length, longest)

    def __call__(self, step: int) -> Batch:
        bucket, places = self.buckets.rows_of(step)
        examples = np.where(places < 0, -1, self.examples[places])
        batch: Batch = {"example": examples}
        for (name, corpus), width in zip(self.columns.items(), bucket.widths, strict=True):
            batch[name], batch[f"{name}_length"] = padded(corpus, examples, width - self.extra.get(name, 0))
        if self.labels is not None:
            batch.update(self._labels(examples, bucket))
        return batch

    def _labels(self, examples: Indices, bucket: Bucket) -> Batch:
        if hasattr(self.labels, "starts"):  # one label per token, of the first column
            name = next(iter(self.columns))
            width = bucket.widths[0] - self.extra.get(name, 0)
            return {"label": padded(self.labels, examples, width)[0]}
        return {"label": np.asarray(self.labels)[np.maximum(examples, 0)]}


class Pictures:
    """Batches of `rows` pictures and their labels."""

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        labels: Indices,
        *,
        rows: int,
        seed: int = 0,
        shuffle: bool = True,
        examples: Indices | None = None,
    ) -> None:
        self.pixels, self.labels, self.rows, self.seed, self.shuffle = pixels, labels, rows, seed, shuffle
        self.examples = np.arange(len(labels)) if examples is None else examples
        self.n_examples = len(self.examples)
        self.steps = -(-self.n_examples // rows)

    def __call__(self, step: int) -> Batch:
        place = np.arange(step * self.rows, (step + 1) * self.rows)
        if not self.shuffle:
            example = place[place < self.n_examples]
        else:  # rows of a step may belong to two epochs: all steps have the same number of rows
            epoch, place = np.divmod(place, self.n_examples)
            example = np.empty_like(place)
            for e in np.unique(epoch).tolist():
                of_epoch = epoch == e
                example[of_epoch] = shuffled(place[of_epoch], self.n_examples, self.seed, ROW_ORDER, e)
        example = self.examples[example]
        return {"example": example, "image": self.pixels[example], "label": self.labels[example]}
