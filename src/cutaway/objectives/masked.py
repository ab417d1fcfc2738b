"""Masked language modelling and next-sentence prediction (BERT).

15 % of the tokens are targets: 80 % of these become [MASK], 10 % another token, 10 % stay unchanged, so that the model
cannot tell which words are true (Devlin et al. 2018, section 3.1). With whole-word masking, all pieces of a word are
masked or none: a piece is too easy to guess from the others.

    [CLS] the man went to the [MASK] [SEP] he bought a [MASK] of milk [SEP]          it follows
    [CLS] the man went to the [MASK] [SEP] penguins [MASK] flightless birds [SEP]    it does not
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cutaway.model.heads import PretrainingHead
from cutaway.model.model import Model
from cutaway.model.tap import Part
from cutaway.objectives.loss import IGNORED, class_loss, token_loss
from cutaway.objectives.objective import Arrays, Objective, Tensors

FOLLOWS, FOLLOWS_NOT = 0, 1


@dataclass(frozen=True)
class Hiding:
    """Which tokens are masked, and what replaces them."""

    mask_id: int
    vocab_size: int
    special_ids: tuple[int, ...] = ()  # never masked, and never a replacement
    continues: tuple[bool, ...] | None = None  # for each id, whether it continues a word; None: no whole-word masking
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __call__(
        self, ids: NDArray[np.int64], real: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The ids with some of them masked, and which ones are targets: `share` of every row, at least one."""
        ordinary = real & ~self._special[ids]
        chosen = self._choose(ids, ordinary, random)
        fate = random.random(ids.shape)
        hidden = ids.copy()
        hidden[chosen & (fate < self.masked)] = self.mask_id
        swapped = chosen & (fate >= self.masked) & (fate < self.masked + self.random)
        another = random.integers(len(self._others), size=ids.shape, dtype=np.int32)
        hidden[swapped] = self._others[another[swapped]]
        return hidden, chosen

    def most(self, width: int) -> int:
        """The largest number of targets in a row of this width."""
        return max(1, round(self.share * width))

    @cached_property
    def _special(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.vocab_size), self.special_ids)

    @cached_property
    def _others(self) -> NDArray[np.int64]:
        """The tokens that may replace another."""
        return np.flatnonzero(~self._special)

    @cached_property
    def _later(self) -> NDArray[np.bool_]:
        return np.array(self.continues or [False] * self.vocab_size)

    def _choose(
        self, ids: NDArray[np.int64], ordinary: NDArray[np.bool_], random: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Words in random order, as many as fit into the row's share; if the first is too long, a part of it."""
        later = np.zeros_like(ordinary)
        later[:, 1:] = self._later[ids[:, 1:]] & ordinary[:, 1:] & ordinary[:, :-1]
        word = (ordinary & ~later).cumsum(axis=1, dtype=np.int32)  # 1, 2, …: the same number for all pieces of a word
        n, width = ids.shape
        number = word + np.arange(0, n * (width + 1), width + 1, dtype=np.int32)[:, None]  # of each word among all rows
        pieces = np.bincount(number[ordinary], minlength=n * (width + 1)).reshape(n, width + 1)  # of each word
        order = np.argsort(np.where(pieces, random.random(pieces.shape), 2.0), axis=1)
        wanted = np.maximum(1, np.round(self.share * ordinary.sum(axis=1)).astype(int))
        taken = _fitting(pieces, order, wanted)
        chosen = taken.ravel()[number]
        first = (word == order[:, :1]) & ~taken.any(axis=1, keepdims=True)  # no word is short enough
        return ordinary & (chosen | first & (np.cumsum(first & ordinary, axis=1, dtype=np.int32) <= wanted[:, None]))


def _fitting(sizes: NDArray[np.int64], order: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.bool_]:
    """In each row, the things that are taken if each one, in order, is taken if it fits; size 0 is nothing."""
    taken = np.zeros_like(sizes, dtype=bool)
    row, left = np.arange(len(sizes)), np.minimum(room, sizes.sum(axis=1))
    for thing in order.T:
        size = sizes[row, thing]
        fits = (size > 0) & (size <= left)
        taken[row, thing] = fits
        left -= size * fits
        if not left.any():  # usually long before the last thing
            break
    return taken


class Masked(Objective):
    """Masked language modelling. From `text` with its lengths, or from windows of a stream (`text`, `document`).

    [CLS] and [SEP] are added around each document if the tokenizer has them.
    """

    targets = {"masked": "targets"}

    def __init__(self, hiding: Hiding, *, cls_id: int | None = None, sep_id: int | None = None) -> None:
        self.hiding, self.cls_id, self.sep_id = hiding, cls_id, sep_id

    @property
    def extra(self) -> int:
        """How many special tokens are added to a row."""
        return int(self.cls_id is not None) + int(self.sep_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        if "document" in batch:
            ids, documents = pack_documents(batch["text"], batch["document"], self.cls_id, self.sep_id)
            return {**self._hide(ids, np.ones_like(ids, dtype=bool), random), "documents": documents}
        length = batch.get("text_length", np.full(len(batch["text"]), batch["text"].shape[1]))
        ids, _, real = join_parts([(batch["text"], length)], self.cls_id, self.sep_id)
        return self._hide(ids, real, random)

    def _hide(self, ids: NDArray[np.int64], real: NDArray[np.bool_], random: np.random.Generator) -> Arrays:
        """`at` are the positions of the targets, equally many in every row, so that only they need logits."""
        hidden, chosen = self.hiding(ids, real, random)
        n = min(self.hiding.most(ids.shape[1]), ids.shape[1])
        at = np.argsort(~chosen, axis=1, kind="stable")[:, :n]
        there = np.take_along_axis(chosen, at, axis=1)
        targets = np.where(there, np.take_along_axis(ids, at, axis=1), IGNORED)
        return {"ids": hidden, "real": real, "at": at, "targets": targets}

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        head = model.head.masked if isinstance(model.head, PretrainingHead) else model.head
        return {"masked": self._masked(head, self._hidden(model, batch), batch)}

    @staticmethod
    def _hidden(model: Model, batch: Tensors) -> Tensor:
        more = {name: batch[name] for name in ("segments", "documents") if name in batch}
        return model.hidden(batch["ids"], real=batch["real"], **more)

    @staticmethod
    def _masked(head: Part, hidden: Tensor, batch: Tensors) -> Tensor:
        places = batch["at"][..., None].expand(-1, -1, hidden.shape[-1])
        return token_loss(head, hidden.gather(1, places), batch["targets"])


class Pretraining(Masked):
    """Masked language modelling and next-sentence prediction. From `first`, `second`, their lengths, `follows`."""

    targets = {"masked": "targets", "next_sentence": "follows"}

    @property
    def extra(self) -> int:
        return int(self.cls_id is not None) + 2 * int(self.sep_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        parts = [(batch[name], batch[f"{name}_length"]) for name in ("first", "second")]
        width = parts[0][0].shape[1] + self.extra  # both parts together are as long as one may be
        ids, segments, real = join_parts(parts, self.cls_id, self.sep_id, width=width)
        follows = np.where(batch["follows"], FOLLOWS, FOLLOWS_NOT)
        follows[batch["second_length"] == 0] = IGNORED  # there is no second part
        return {**self._hide(ids, real, random), "segments": segments, "follows": follows}

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        head, hidden = model.head, self._hidden(model, batch)
        assert isinstance(head, PretrainingHead)
        return {
            "masked": self._masked(head.masked, hidden, batch),
            "next_sentence": class_loss(head.next_sentence(hidden, batch["real"]), batch["follows"]),
        }


def pack_documents(
    text: NDArray[np.int64], document: NDArray[np.int64], cls_id: int | None, sep_id: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[CLS] one document [SEP] [CLS] the next [SEP]: the ids, and which document of the row each belongs to.

    A row is as wide as if it held one document: for each border it loses its last tokens to a [SEP] and a [CLS].
    """
    front, back = int(cls_id is not None), int(sep_id is not None)
    begins = np.diff(document, axis=1, prepend=document[:, :1] - 1) != 0
    n_before = np.cumsum(begins, axis=1) - 1
    at = np.arange(text.shape[1]) + front + n_before * (front + back)
    ids = np.full((len(text), at.max() + 1 + back), 0 if sep_id is None else sep_id)  # what stays free is a [SEP]
    np.put_along_axis(ids, at, text, axis=1)
    row, place = np.nonzero(begins)
    first = at[row, place] - front
    if cls_id is not None:
        ids[row, first] = cls_id
    documents = np.zeros_like(ids)
    documents[row, first] = 1
    width = text.shape[1] + front + back
    if sep_id is not None:
        ids[:, width - 1] = sep_id
    return ids[:, :width], np.cumsum(documents, axis=1)[:, :width]


def join_parts(
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    cls_id: int | None,
    sep_id: int | None,
    there: NDArray[np.bool_] | None = None,
    width: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """[CLS] first [SEP] second [SEP]: the ids, the segment of each, and which are real. Padding stands at the end.

    A row has room for the longest of all parts, or `width` places, if all that belongs to a row has room there.
    """
    n = len(parts[0][0])
    front, back = int(cls_id is not None), int(sep_id is not None)
    width = front + sum(rows.shape[1] + back for rows, _ in parts) if width is None else width
    ids, segments = np.zeros((n, width), dtype=np.int64), np.zeros((n, width), dtype=np.int64)
    there = parts[0][1] > 0 if there is None else there  # rows without an example stay empty
    place = np.arange(width)
    at = np.full(n, front)
    if cls_id is not None:
        ids[there, 0] = cls_id
    for segment, (rows, length) in enumerate(parts):
        end = at + length
        # row by row, as the tokens stand in the part
        ids[(place >= at[:, None]) & (place < end[:, None])] = rows[np.arange(rows.shape[1]) < length[:, None]]
        if sep_id is not None:
            ids[there, end[there]] = sep_id
        if segment:
            segments[(place >= at[:, None]) & (place < (end + back)[:, None])] = segment
        at = end + back
    return ids, segments, (place < at[:, None]) & there[:, None]
