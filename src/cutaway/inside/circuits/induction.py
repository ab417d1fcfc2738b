"""Induction heads: after … Dursley … comes, at the next Dursley, whatever came after the first. (Olsson et al. 2022.)

On random tokens said twice nothing else helps: a head that looks, from a token of the second time, at the one *after*
its first occurrence knows what is next. It needs a head below it that tells each token what stood before it.

    ids = repeated(model.config.vocab_size, rows=8, length=32)
    found = induction(model, ids)
    found.induction.best(3)           # [('decoder.1.attention.5', 0.93), …]
    found.loss                        # first time 6.2 nats, second time 0.4

`over_training` gives the same for every checkpoint of a run: induction heads appear suddenly, and the loss of the
second time falls with them.
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

from cutaway.checkpoints.tensors import open_tensors
from cutaway.errors import InputError
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.tap import watch


@dataclass(frozen=True, eq=False)
class InductionHeads:
    """Scores of every head, 0 … 1, and what the tokens cost the first and the second time, in nats."""

    induction: HeadScores  # from the second occurrence to the token after the first
    duplicate: HeadScores  # from the second occurrence to the first
    previous: HeadScores  # from each token to the one before it
    loss: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        scores = {name: getattr(self, name).to_dict() for name in ("induction", "duplicate", "previous")}
        return {**scores, "loss_first": self.loss[0], "loss_second": self.loss[1]}


def repeated_tokens(
    vocab_size: int, *, rows: int = 8, length: int = 32, seed: int = 0, start_id: int | None = None, least: int = 0
) -> Int[Tensor, "rows twice"]:
    """Random tokens from `least` on, all different in a row, said twice; behind a start token where there is one."""
    draw = torch.Generator().manual_seed(seed)
    if vocab_size - least < length:
        raise InputError(f"{length} different tokens, and there are {vocab_size - least}: choose a smaller length")
    once = torch.stack([torch.randperm(vocab_size - least, generator=draw)[:length] + least for _ in range(rows)])
    front = [] if start_id is None else [torch.full((rows, 1), start_id)]
    return torch.cat([*front, once, once], dim=1)


def induction_heads(model: Model, ids: Int[Tensor, "rows twice"]) -> InductionHeads:
    """The scores on rows that say everything twice, with or without one token in front (`repeated`)."""
    length, front = divmod(ids.shape[1], 2)
    if length < 2 or not torch.equal(ids[:, front : front + length], ids[:, front + length :]):
        raise InputError("these rows do not say the same twice: make them with repeated()")
    if model.config.task != "language_model":
        raise InputError(f"induction is of models that say what is next; this one's task is {model.config.task}")
    ids = ids.to(model.device)
    with torch.no_grad(), watch(model, "decoder.*.attention.pattern") as seen:
        logits = model(ids)
    check_scores(model, logits)
    found = {tap.removesuffix(".pattern"): pattern for tap, pattern in seen.items()}
    second = torch.arange(front + length, front + 2 * length)
    # the last of the first time is followed by the second time itself, which is no proof of anything
    some = second[:-1]
    ways = {"induction": (some, some - length + 1), "duplicate": (second, second - length)}
    ways["previous"] = (torch.arange(1, ids.shape[1]), torch.arange(ids.shape[1] - 1))
    scores = {
        name: HeadScores.of(name, {part: x[:, :, query, key].mean(dim=(0, 2)) for part, x in found.items()})
        for name, (query, key) in ways.items()
    }
    nats = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none").mean(dim=0)
    # the first token of the second time comes as a surprise; of the first time, one fewer may be known
    first, last = nats[front : front + length - 1], nats[front + length :]
    return InductionHeads(**scores, loss=(first.mean().item(), last.mean().item()))


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
