"""Batches of pairs to translate, in one direction or several."""

from typing import Any

import numpy as np

from cutaway.data.batches import Batch, padded_batch
from cutaway.data.buckets import Buckets
from cutaway.data.order import Indices
from cutaway.data.table_examples import Dataset
from cutaway.errors import InputError
from cutaway.objectives.translation import Translation
from cutaway.tokens import Tokenizer
from cutaway.training.recipe import Recipe, directions_of


def source_columns(recipe: Recipe, tokenizer: Tokenizer) -> list[tuple[str, str, int | None]]:
    """Source and target of each direction, and the tag in front of its sources."""
    if ways := directions_of(recipe):
        return [(source, target, tokenizer.tag_id(target)) for source, target in ways]
    d = recipe.data
    source, target = d.header[:2] if d.format == "parallel" and d.header else (d.source, d.target)
    return [(source, target, None)]


class PairBatches:
    """Batches of pairs in each direction, with the tags of their targets.

    A pair with a side longer than seq_len is left out: a sentence that is cut short has another translation.
    """

    def __init__(
        self, recipe: Recipe, data: Dataset, objective: Translation, tokenizer: Tokenizer, examples: Indices, **how: Any
    ) -> None:
        seq_len, self.cuts = recipe.data.seq_len, data.cuts
        ways = source_columns(recipe, tokenizer)
        self.ways = [(data.columns[source], data.columns[target]) for source, target, _ in ways]
        self.tags = np.array([tag or 0 for _, _, tag in ways])
        self.pair, self.way = np.tile(examples, len(ways)), np.repeat(np.arange(len(ways)), len(examples))
        self.extra = objective.extra
        source, target = (
            np.concatenate([way[side].lengths[examples] for way in self.ways]) + self.extra[name]
            for side, name in enumerate(("source", "target"))
        )
        fits = (source <= seq_len) & (target <= seq_len)
        self.too_long = int((~fits).sum())
        if not fits.any():
            raise InputError(f"every pair is longer than seq_len={seq_len}: allow more")
        self.pair, self.way = self.pair[fits], self.way[fits]
        self.buckets = Buckets([source[fits], target[fits]], widest=[seq_len, seq_len], **how)
        self.steps, self.n_examples = self.buckets.steps, self.buckets.n_examples

    def __call__(self, step: int) -> Batch:
        bucket, places = self.buckets.rows_of(step)
        filled = places >= 0
        pair = np.where(filled, self.pair[places], -1)
        way = np.where(filled, self.way[places], -1)
        batch: Batch = {"example": pair, "tag": self.tags[np.maximum(way, 0)]}
        for side, name in enumerate(("source", "target")):
            width = bucket.widths[side] - self.extra[name]
            sides = [
                padded_batch(pairs[side], np.where(way == i, pair, -1), width) for i, pairs in enumerate(self.ways)
            ]
            batch[name] = np.sum([rows for rows, _ in sides], axis=0)  # a row is 0 in every way but its own
            batch[f"{name}_length"] = np.sum([lengths for _, lengths in sides], axis=0)
        return batch
