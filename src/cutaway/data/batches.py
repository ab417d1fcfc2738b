"""Batches: which examples are in a batch, as a function of the step and of nothing else.

    batches = Windows(corpus, rows=64, seq_len=256, seed=0)
    batches(1000)["text"]             # batch 1,000; none before it has to be made

A batch is a dictionary of arrays. `Windows` cuts a stream of tokens into rows of one length (language modelling).
`Examples` and `Pairs` are the rows of a table, in buckets of similar length (`data.buckets`), up to a number of tokens.
Every epoch has each example once, in a different order.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cutaway.data.buckets import Buckets
from cutaway.data.order import ROW_ORDER, WINDOW_ORDER, WINDOW_START, Indices, random_number, shuffled
from cutaway.errors import InputError

Batch = dict[str, NDArray[Any]]


@runtime_checkable
class Sequences(Protocol):
    """Token sequences one after another, as a corpus has them."""

    @property
    def ids(self) -> NDArray[Any]: ...
    @property
    def starts(self) -> Indices: ...
    def __len__(self) -> int: ...


@runtime_checkable
class Source(Protocol):
    """Where batches come from."""

    steps: int  # per epoch
    n_examples: int

    def __call__(self, step: int) -> Batch: ...


class Windows:
    """Rows of `seq_len` tokens and the one after them, from the concatenation of all documents.

    Each epoch cuts the stream in different places. If rows contain borders of documents, `document` has the number of
    each token's document.
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
        self.n_examples = (len(corpus.ids) - 1) // seq_len
        if shuffle and self.n_examples > 1:
            self.n_examples -= 1  # so that the first cut may move by a whole row, and epochs are cut differently
        self.slack = len(corpus.ids) - self.n_examples * seq_len  # how far the first cut may move, plus one
        if self.n_examples < 1:
            raise InputError(
                f"{len(corpus.ids):,} tokens of text are too few for one row of seq_len={seq_len} and the token after"
                f" it: give more text or a smaller seq_len"
            )
        self.steps = -(-self.n_examples // rows)

    def starts(self, step: int) -> Indices:
        """The first token of each row of a step, whose rows may belong to two epochs."""
        place = np.arange(step * self.rows, (step + 1) * self.rows)
        if not self.shuffle:
            return place[place < self.n_examples] * self.seq_len
        epoch, place = np.divmod(place, self.n_examples)
        start = np.empty_like(place)
        for e in np.unique(epoch).tolist():
            of_epoch = epoch == e
            window = shuffled(place[of_epoch], self.n_examples, self.seed, WINDOW_ORDER, e)
            start[of_epoch] = window * self.seq_len + random_number(self.slack, self.seed, WINDOW_START, e)
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


def padded_batch(
    corpus: Sequences, examples: Indices, width: int, longest: Indices | int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """These sequences as rows of `width`, truncated or padded with 0, and their lengths; example −1 is an empty row.

    They are truncated to `longest`, one number for all or one for each, or to the width.
    """
    length = np.minimum(lengths_of(corpus, examples), width if longest is None else longest)
    length = np.where(examples < 0, 0, length)
    index = np.asarray(corpus.starts[np.maximum(examples, 0)])[:, None] + np.arange(width)
    inside = np.arange(width) < length[:, None]
    rows = corpus.ids[np.where(inside, index, 0)].astype(np.int64)
    return np.where(inside, rows, 0), length


def lengths_of(corpus: Sequences, examples: Indices) -> Indices:
    there = np.maximum(examples, 0)
    return np.asarray(corpus.starts[there + 1]) - np.asarray(corpus.starts[there])


def longest_first(lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """How much is kept of the one or two texts of a row of `room` tokens: the longer one is truncated first."""
    first, second = lengths[:, 0], lengths[:, 1:].sum(axis=1)
    kept = np.minimum(first, np.maximum(room - second, room - room // 2))
    return np.stack([kept, np.minimum(second, room - kept)], axis=1)[:, : lengths.shape[1]]


class Examples:
    """Batches of a table: each text column as rows of tokens and their lengths, and the labels.

    `extra` is the number of special tokens that an objective adds to each column, `longest` the length to which one
    is truncated; `cut` counts the truncated examples. `options` are those of `Buckets`.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequences],
        labels: Any = None,
        *,
        extra: Mapping[str, int] | None = None,
        longest: Mapping[str, int] | None = None,
        examples: Indices | None = None,
        **options: Any,
    ) -> None:
        self.columns, self.labels, self.extra = columns, labels, extra or {}
        self.examples = np.arange(len(next(iter(columns.values())))) if examples is None else examples
        widest = [(longest or {}).get(name) for name in columns]
        whole = [lengths_of(corpus, self.examples) + self.extra.get(name, 0) for name, corpus in columns.items()]
        kept = [n if most is None else np.minimum(n, most) for n, most in zip(whole, widest, strict=True)]
        self.cut = int(np.any([n > m for n, m in zip(whole, kept, strict=True)], axis=0).sum())
        self.buckets = Buckets([np.maximum(n, 1) for n in kept], widest=widest, **options)  # a row has at least one
        self.steps, self.n_examples = self.buckets.steps, self.buckets.n_examples

    def __call__(self, step: int) -> Batch:
        bucket, places = self.buckets.rows_of(step)
        examples = np.where(places < 0, -1, self.examples[places])
        batch: Batch = {"example": examples}
        for (name, corpus), width in zip(self.columns.items(), bucket.widths, strict=True):
            batch[name], batch[f"{name}_length"] = padded_batch(corpus, examples, width - self.extra.get(name, 0))
        if hasattr(self.labels, "starts"):  # one label per token, of the first column
            batch["label"], _ = padded_batch(self.labels, examples, batch[next(iter(self.columns))].shape[1])
        elif self.labels is not None:
            batch["label"] = np.asarray(self.labels)[np.maximum(examples, 0)]
        return batch


class Pairs:
    """Batches of two texts that share a row, and their labels.

    `first` and `second` come in rows of equal width, and together are no longer than that. A pair that is longer than
    `longest`, with `extra` special tokens, is truncated, the longer text first; `cut` counts these.
    """

    def __init__(
        self,
        first: Sequences,
        second: Sequences,
        labels: Any,
        *,
        extra: int,
        longest: int,
        examples: Indices | None = None,
        **options: Any,
    ) -> None:
        self.texts, self.labels = {"first": first, "second": second}, labels
        self.extra, self.room = extra, longest - extra
        if self.room < 2:
            raise InputError(
                f"rows of {longest} tokens, {extra} of them special, have no room for two texts: allow longer ones"
            )
        self.examples = np.arange(len(first)) if examples is None else examples
        kept = self._kept(self.examples)
        self.cut = int((kept < self._lengths(self.examples)).any(axis=1).sum())
        self.buckets = Buckets([kept.sum(axis=1) + extra], widest=[longest], **options)
        self.steps, self.n_examples = self.buckets.steps, self.buckets.n_examples

    def _lengths(self, examples: Indices) -> NDArray[np.int64]:
        return np.stack([lengths_of(corpus, examples) for corpus in self.texts.values()], axis=1)

    def _kept(self, examples: Indices) -> NDArray[np.int64]:
        return longest_first(self._lengths(examples), self.room)

    def __call__(self, step: int) -> Batch:
        bucket, places = self.buckets.rows_of(step)
        examples = np.where(places < 0, -1, self.examples[places])
        batch: Batch = {"example": examples, "label": np.asarray(self.labels)[np.maximum(examples, 0)]}
        for (name, corpus), kept in zip(self.texts.items(), self._kept(examples).T, strict=True):
            batch[name], batch[f"{name}_length"] = padded_batch(corpus, examples, bucket.widths[0] - self.extra, kept)
        return batch


class ImageBatches:
    """Batches of `rows` images and their labels."""

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
        else:  # a step may have rows of two epochs: all steps have the same number of rows
            epoch, place = np.divmod(place, self.n_examples)
            example = np.empty_like(place)
            for e in np.unique(epoch).tolist():
                of_epoch = epoch == e
                example[of_epoch] = shuffled(place[of_epoch], self.n_examples, self.seed, ROW_ORDER, e)
        example = self.examples[example]
        return {"example": example, "image": self.pixels[example], "label": self.labels[example]}
