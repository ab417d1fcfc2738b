"""How well a model fills blanks: 15 % of the tokens are hidden as in training, and the model guesses them.

Each row has random numbers of its own, so that the same seed gives the same blanks, whatever the model and the
batch. (Pseudo-perplexity hides every token alone, at one pass of the model for each: Salazar et al. 2020.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cutaway.arguments import Progress, checked, no_progress
from cutaway.data.order import generator
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.heads import PretrainingHead
from cutaway.model.model import Model
from cutaway.objectives import IGNORED
from cutaway.objectives.masked import Hiding, Masked
from cutaway.objectives.objective import Arrays, as_tensors
from cutaway.tokens import Tokenizer

BLANKS = 103  # what random numbers are for


@dataclass(frozen=True, eq=False)
class BlankScores:
    """Of each row: the nats that its blanks cost, how many were filled with the true token, and how many there are."""

    nats: np.ndarray
    right: np.ndarray
    blanks: np.ndarray


@checked
@torch.no_grad()
def fill_blanks(
    model: Model,
    tokenizer: Tokenizer,
    documents: Sequence[Sequence[int]],
    *,
    context: int,
    seed: int = 0,
    batch: int = 8,
    progress: Progress = no_progress,
) -> BlankScores:
    """Documents, cut into rows of `context` tokens with [CLS] and [SEP] around each, and the blanks in them."""
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token: use a model with one")
    hiding = Hiding(
        mask_id=tokenizer.mask_id,
        vocab_size=tokenizer.vocab_size,
        special_ids=tuple(tokenizer.special_ids().values()),
        continues=tuple(tokenizer.continues_word()),
    )
    objective = Masked(hiding, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    width = context - objective.extra
    if width < 1:
        raise InputError(f"context={context} has no room for a token between [CLS] and [SEP]")
    rows = [ids[at : at + width] for ids in documents for at in range(0, len(ids), width)]
    found: list[tuple[float, int, int]] = []
    for at in range(0, len(rows), batch):
        found += _answers(model, _hidden(objective, rows[at : at + batch], at, seed))
        progress(min(at + batch, len(rows)), len(rows))
    if not sum(blanks for *_, blanks in found):
        raise InputError("no text, no score")
    return BlankScores(*np.array(found, dtype=np.float64).T)


def _hidden(objective: Masked, rows: Sequence[Sequence[int]], first: int, seed: int) -> Arrays:
    """Some rows with their blanks, padded to the longest."""
    alone = [
        objective.prepare({"text": np.array([ids])}, generator(seed, BLANKS, first + i)) for i, ids in enumerate(rows)
    ]
    fill = {"ids": 0, "real": False, "at": 0, "targets": IGNORED}
    longest = {name: max(row[name].shape[1] for row in alone) for name in fill}
    return {
        name: np.concatenate(
            [
                np.pad(row[name], ((0, 0), (0, longest[name] - row[name].shape[1])), constant_values=value)
                for row in alone
            ]
        )
        for name, value in fill.items()
    }


def _answers(model: Model, arrays: Arrays) -> list[tuple[float, int, int]]:
    """Nats, right answers and blanks of each row."""
    batch = as_tensors(arrays, model.device)
    head = model.head.masked if isinstance(model.head, PretrainingHead) else model.head
    hidden = model.hidden(batch["ids"], real=batch["real"])
    asked = hidden.gather(1, batch["at"][..., None].expand(-1, -1, hidden.shape[-1]))
    logits = head(asked).double()
    check_scores(model, logits)
    targets, there = batch["targets"].clamp(min=0), batch["targets"] != IGNORED
    nats = -logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0] * there
    right = (logits.argmax(dim=-1) == targets) & there
    sums = (part.sum(dim=1).tolist() for part in (nats, right, there))
    return list(zip(*sums, strict=True))
