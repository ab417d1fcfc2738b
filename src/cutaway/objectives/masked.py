"""BERT's two questions: which words are hidden here, and does the second part follow the first?

Of the tokens 15 % are to be guessed: 80 % of them become [MASK], 10 % another token, 10 % stay as they are, so that the
model cannot tell which words are true (Devlin et al. 2018, section 3.1). With whole words, all pieces of a word are
hidden or none: a piece is too easy to guess from the others.

    [CLS] the man went to the [MASK] [SEP] he bought a [MASK] of milk [SEP]          it follows
    [CLS] the man went to the [MASK] [SEP] penguins [MASK] flightless birds [SEP]    it does not
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
    """Which tokens are hidden, and behind what."""

    mask_id: int
    vocab_size: int
    special_ids: tuple[int, ...] = ()  # never hidden, never put in place of another
    continues: tuple[bool, ...] | None = None  # for each id: is it a later piece of a word? None hides single tokens
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __call__(
        self, ids: NDArray[np.int64], real: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The ids with some of them hidden, and which ones are to be guessed: `share` of every row, at least one."""
        ordinary = real & ~np.isin(ids, self.special_ids)
        chosen = self._choose(ids, ordinary, random)
        fate = random.random(ids.shape)
        hidden = np.where(chosen & (fate < self.masked), self.mask_id, ids)
        swapped = chosen & (fate >= self.masked) & (fate < self.masked + self.random)
        others = np.setdiff1d(np.arange(self.vocab_size), self.special_ids)
        return np.where(swapped, others[random.integers(len(others), size=ids.shape)], hidden), chosen

    def most(self, width: int) -> int:
        """The most tokens of a row that are to be guessed: rows of this many places hold them all."""
        return max(1, round(self.share * width))

    def _choose(
        self, ids: NDArray[np.int64], ordinary: NDArray[np.bool_], random: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Words in a random order, as many as fit into the row's share; the first of them is cut if it is too long."""
        later = np.zeros_like(ordinary)
        if self.continues is not None:
            later[:, 1:] = np.array(self.continues)[ids[:, 1:]] & ordinary[:, 1:] & ordinary[:, :-1]
        word = np.cumsum(ordinary & ~later, axis=1)  # 1, 2, … ; the pieces of a word share its number
        draw = random.random(ids.shape)
        first = np.take_along_axis(
            draw, np.maximum(_last_true(~later), 0), axis=1
        )  # a word is drawn by its first piece
        key = np.where(ordinary, first, np.inf)
        order = np.lexsort((np.arange(ids.shape[1])[None].repeat(len(ids), 0), word, key), axis=1)
        chosen = np.zeros_like(ordinary)
        wanted = np.maximum(1, np.round(self.share * ordinary.sum(axis=1)).astype(int))
        for row in range(len(ids)):
            self._fill(chosen[row], order[row][: ordinary[row].sum()], word[row], int(wanted[row]))
        return chosen

    @staticmethod
    def _fill(chosen: NDArray[np.bool_], order: NDArray[np.int64], word: NDArray[np.int64], wanted: int) -> None:
        words = word[order]
        cuts = np.flatnonzero(np.diff(words)) + 1
        ends = np.append(cuts, len(order))  # where each word, in the order drawn, ends
        starts = np.append(0, cuts)
        left = wanted
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if left == 0:
                return
            if end - start <= left:
                chosen[order[start:end]] = True
                left -= end - start
        if left == wanted and len(order):  # no word is short enough
            chosen[order[:wanted]] = True


def _last_true(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each place the last place up to it that is True."""
    places = np.where(flags, np.arange(flags.shape[1]), -1)
    return np.maximum.accumulate(places, axis=1)


class Masked(Objective):
    """Fill the blanks. From `text` with its lengths; [CLS] and [SEP] are put around it where there are such."""

    task: ClassVar[str] = "masked_language_model"
    targets = {"masked": "targets"}

    def __init__(self, hiding: Hiding, *, cls_id: int | None = None, sep_id: int | None = None) -> None:
        self.hiding, self.cls_id, self.sep_id = hiding, cls_id, sep_id

    @property
    def extra(self) -> int:
        """Places that a row needs besides its tokens."""
        return int(self.cls_id is not None) + int(self.sep_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        length = batch.get("text_length", np.full(len(batch["text"]), batch["text"].shape[1]))
        ids, _, real = joined([(batch["text"], length)], self.cls_id, self.sep_id)
        return self._hide(ids, real, random)

    def _hide(self, ids: NDArray[np.int64], real: NDArray[np.bool_], random: np.random.Generator) -> Arrays:
        """`at` are the places to be guessed, the same number in every row, so that only they are scored."""
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
        more = {"segments": batch["segments"]} if "segments" in batch else {}
        return model.hidden(batch["ids"], real=batch["real"], **more)

    @staticmethod
    def _masked(head: Part, hidden: Tensor, batch: Tensors) -> Tensor:
        places = batch["at"][..., None].expand(-1, -1, hidden.shape[-1])
        return token_loss(head, hidden.gather(1, places), batch["targets"])


class Pretraining(Masked):
    """Fill the blanks **and** say whether the second part follows. From `first`, `second`, their lengths, `follows`."""

    task: ClassVar[str] = "pretrain"
    targets = {"masked": "targets", "next_sentence": "follows"}

    @property
    def extra(self) -> int:
        return int(self.cls_id is not None) + 2 * int(self.sep_id is not None)

    def prepare(self, batch: Arrays, random: np.random.Generator) -> Arrays:
        parts = [(batch[name], batch[f"{name}_length"]) for name in ("first", "second")]
        width = parts[0][0].shape[1] + self.extra  # both parts together are as long as either may be
        ids, segments, real = joined(parts, self.cls_id, self.sep_id)
        follows = np.where(batch["follows"], FOLLOWS, FOLLOWS_NOT)
        hidden = self._hide(ids[:, :width], real[:, :width], random)
        return {**hidden, "segments": segments[:, :width], "follows": follows}

    def losses(self, model: Model, batch: Tensors) -> dict[str, Tensor]:
        head, hidden = model.head, self._hidden(model, batch)
        assert isinstance(head, PretrainingHead)
        return {
            "masked": self._masked(head.masked, hidden, batch),
            "next_sentence": class_loss(head.next_sentence(hidden, batch["real"]), batch["follows"]),
        }


def joined(
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    cls_id: int | None,
    sep_id: int | None,
    there: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """[CLS] first [SEP] second [SEP]: the ids, the segment of each, and which are real. Padding stands at the end."""
    n = len(parts[0][0])
    front, back = int(cls_id is not None), int(sep_id is not None)
    width = front + sum(rows.shape[1] + back for rows, _ in parts)
    ids, segments = np.zeros((n, width), dtype=np.int64), np.zeros((n, width), dtype=np.int64)
    there = parts[0][1] > 0 if there is None else there  # rows without an example stay empty
    at = np.full(n, front)
    if cls_id is not None:
        ids[there, 0] = cls_id
    for segment, (rows, length) in enumerate(parts):
        row, place = np.nonzero(np.arange(rows.shape[1]) < length[:, None])
        ids[row, at[row] + place] = rows[row, place]
        end = at + length
        if sep_id is not None:
            ids[there, end[there]] = sep_id
        reach = (np.arange(width) >= at[:, None]) & (np.arange(width) < (end + back)[:, None])
        segments[reach] = segment
        at = end + back
    return ids, segments, (np.arange(width) < at[:, None]) & there[:, None]
