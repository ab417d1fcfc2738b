"""Induction heads: at the second «Dursley», they look at what came after the first one. (Olsson et al. 2022.)

On repeated random tokens nothing else helps: a head that looks from the second occurrence of a token to the token
*after* the first one knows what is next. It needs a head below it that copies the previous token to each position.

    ids = repeated_tokens(model.config.vocab_size, rows=8, length=32)
    found = induction_heads(model, ids)
    found.induction.best(3)           # [('decoder.1.attention.5', 0.93), …]
    found.loss                        # first time 6.2 nats, second time 0.4

`induction_over_training` does this for every checkpoint of a run: induction heads appear suddenly, and the loss on the
repetition falls with them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.checkpoints.tensors import open_tensors
from cutaway.errors import InputError
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.tap import watch


@dataclass(frozen=True, eq=False)
class InductionHeads:
    """Scores of every head, 0 … 1, and the loss on the tokens and on their repetition, in nats."""

    induction: HeadScores  # from the second occurrence to the token after the first
    duplicate: HeadScores  # from the second occurrence to the first
    previous: HeadScores  # from each token to the one before it
    loss: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        scores = {name: getattr(self, name).to_dict() for name in ("induction", "duplicate", "previous")}
        return {**scores, "loss_first": self.loss[0], "loss_second": self.loss[1]}


@checked
def repeated_tokens(
    vocab_size: int, *, rows: int = 8, length: int = 32, seed: int = 0, start_id: int | None = None, least: int = 0
) -> Int[Tensor, "rows twice"]:
    """Rows of different random ids, at least `least`, repeated once, after a start token if there is one.

    >>> repeated_tokens(20, rows=2, length=4)
    """
    draw = torch.Generator().manual_seed(seed)
    if vocab_size - least < length:
        raise InputError(
            f"length={length}, and there are {vocab_size - least} different tokens: choose a smaller length"
        )
    once = torch.stack([torch.randperm(vocab_size - least, generator=draw)[:length] + least for _ in range(rows)])
    front = [] if start_id is None else [torch.full((rows, 1), start_id)]
    return torch.cat([*front, once, once], dim=1)


@checked
def induction_heads(model: Model, ids: Int[Tensor, "rows twice"]) -> InductionHeads:
    """Scores every head on rows of `repeated_tokens`.

    >>> induction_heads(model, repeated_tokens(20, rows=2, length=4)).induction.best(1)
    """
    length, front = divmod(ids.shape[1], 2)
    if length < 2 or not torch.equal(ids[:, front : front + length], ids[:, front + length :]):
        raise InputError("these rows are not repeated: make them with repeated_tokens()")
    if model.config.task != "language_model":
        raise InputError(f"induction is for language models; the task of this one is {model.config.task}")
    ids = ids.to(model.device)
    with torch.no_grad(), watch(model, "decoder.*.attention.pattern") as seen:
        logits = model(ids)
    check_scores(model, logits)
    found = {tap.removesuffix(".pattern"): pattern for tap, pattern in seen.items()}
    second = torch.arange(front + length, front + 2 * length)
    # the last token is left out: its first occurrence is followed by the repetition itself
    some = second[:-1]
    ways = {"induction": (some, some - length + 1), "duplicate": (second, second - length)}
    ways["previous"] = (torch.arange(1, ids.shape[1]), torch.arange(ids.shape[1] - 1))
    scores = {
        name: HeadScores.of(name, {part: x[:, :, query, key].mean(dim=(0, 2)) for part, x in found.items()})
        for name, (query, key) in ways.items()
    }
    nats = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none").mean(dim=0)
    # the first token of the repetition cannot be predicted, so that one fewer is compared
    first, last = nats[front : front + length - 1], nats[front + length :]
    return InductionHeads(**scores, loss=(first.mean().item(), last.mean().item()))


@checked
def induction_over_training(
    model: Model, run: Path | str, ids: Int[Tensor, "rows twice"]
) -> Iterator[tuple[int, InductionHeads]]:
    """Step and scores for every checkpoint of the folder that was trained into, oldest first; `model` ends with the
    weights of the last."""
    folder = Path(run) / "run" / "checkpoints"
    steps = {int(found[1]): path for path in folder.glob("step-*") if (found := re.fullmatch(r"step-(\d+)", path.name))}
    if not steps:
        raise InputError(
            f"{folder} has no checkpoints: train with more of them (checkpoint.every and checkpoint.keep in the recipe)"
        )
    for step, path in sorted(steps.items()):
        weights = open_tensors(path / "weights.safetensors")
        for name, parameter in model.named_parameters():
            weights.copy_into(name, parameter.data)
        yield step, induction_heads(model, ids)
