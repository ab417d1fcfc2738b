"""Span corruption: some spans are removed from a text, and the decoder writes them (T5, Raffel et al. 2020).

source   Thank you <extra_id_0> me to your party <extra_id_1> week </s>
target   <extra_id_0> for inviting <extra_id_1> last </s>
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import ConfigError
from cutaway.objectives.objective import Arrays
from cutaway.objectives.translation import Translation


class SpanCorruption(Translation):
    """From `text` with its lengths. Sentinels stand for the removed spans, in their order."""

    targets = {"spans": "targets"}

    def __init__(
        self, *, start_id: int, end_id: int, sentinels: Sequence[int], share: float = 0.15, mean_span: float = 3.0
    ) -> None:
        super().__init__(start_id=start_id, end_id=end_id, smoothing=0.0)
        if not sentinels:
            raise ConfigError("span corruption needs sentinel tokens (<extra_id_0>, …) in the vocabulary")
        self.sentinels, self.share, self.mean_span = np.array(sentinels), share, mean_span

    def widths(self, width: int) -> tuple[int, int]:
        """The lengths of source and target that a text of `width` tokens can become."""
        n_spans = self._n_spans(width)
        n_cut = self._n_cut(width)
        return width - n_cut + n_spans + 1, n_cut + n_spans + 1

    def _n_cut(self, n: int) -> int:
        return min(max(round(n * self.share), 1), n - 1)

    def _n_spans(self, n: int) -> int:
        n_cut = self._n_cut(n)
        return max(1, min(round(n_cut / self.mean_span), n_cut, n - n_cut, len(self.sentinels)))

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        text = batch["text"]
        length = batch.get("text_length", np.full(len(text), text.shape[1]))
        pairs = [
            self.cut(row[:n], random) if n > 1 else (row[:n], row[:0]) for row, n in zip(text, length, strict=True)
        ]
        source_width, target_width = self.widths(max(2, text.shape[1]))
        source, source_length = _rows([source for source, _ in pairs], source_width - 1)
        target, target_length = _rows([target for _, target in pairs], target_width - 1)
        example = np.where(length > 1, 0, -1)
        return super().prepare(
            {
                "example": example,
                "source": source,
                "source_length": source_length,
                "target": target,
                "target_length": target_length,
            },
            random,
        )

    def cut(self, row: NDArray[np.int64], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The text without its spans, and the spans: kept and removed runs alternate, a kept one first."""
        n_spans, n_cut = self._n_spans(len(row)), self._n_cut(len(row))
        cut, kept = _partition(n_cut, n_spans, random), _partition(len(row) - n_cut, n_spans, random)
        source: list[NDArray[np.int64]] = []
        target: list[NDArray[np.int64]] = []
        at = 0
        for sentinel, n_kept, n_gone in zip(self.sentinels, kept, cut, strict=False):
            source += [row[at : at + n_kept], np.array([sentinel])]
            at += n_kept
            target += [np.array([sentinel]), row[at : at + n_gone]]
            at += n_gone
        return np.concatenate(source), np.concatenate(target)

    def losses(self, model, batch):  # type: ignore[no-untyped-def]
        return {"spans": super().losses(model, batch)["translation"]}


def _partition(total: int, parts: int, random: np.random.Generator) -> list[int]:
    """`total` as a sum of `parts` positive numbers, all such sums equally likely."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False) + 1) if parts > 1 else np.array([], dtype=int)
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(int).tolist()


def _rows(sequences: list[NDArray[np.int64]], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.zeros((len(sequences), width), dtype=np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return rows, np.array([len(sequence) for sequence in sequences])
