"""A run with its nonlinear factors frozen: the rest is linear, so that a sum can be followed term by term.

A norm divides by a scale that depends on the whole vector. With the scale frozen at its value in the run, the norm of a
sum is the sum of the norms of its terms, and the bias is one more term. An activation is frozen in the same way:
f(z) = z · gate, with the gate f(z)/z as in the run. (Elhage et al. 2021, for norms.)

The result says what each part did in this run, not what would happen without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.model.heads import (
    ClassificationHead,
    First,
    LanguageModelHead,
    LastTokenHead,
    MaskedLanguageModelHead,
    Mean,
    NextSentenceHead,
    Pooler,
    PretrainingHead,
    TaggingHead,
)
from cutaway.model.norms import LayerNorm, RMSNorm
from cutaway.model.tap import watch
from cutaway.model.upcast import upcast

Vectors = Float[Tensor, "writer batch *seq d"]
Hidden = Float[Tensor, "batch seq d_model"]
Tokens = Sequence[int] | Int[Tensor, "batch seq"]


@dataclass(frozen=True, eq=False)
class FrozenStep:
    """An affine map: its linear part, for each term of a sum, and its bias, which is one more term."""

    name: str
    linear: Callable[[Tensor], Tensor]
    bias: Tensor | None = None
    frozen: bool = False  # it is affine only because a factor is frozen


def norm_step(name: str, norm: nn.Module, scale: Float[Tensor, "*batch 1"]) -> FrozenStep:
    """A norm with the scale that it had in the run."""
    if isinstance(norm, LayerNorm):
        weight, bias = upcast(norm.weight), None if norm.bias is None else upcast(norm.bias)
        return FrozenStep(name, lambda x: (x - x.mean(-1, keepdim=True)) * (scale * weight), bias, frozen=True)
    if isinstance(norm, RMSNorm):
        return FrozenStep(name, lambda x: x * (scale * upcast(norm.weight)), frozen=True)
    raise InputError(f"{name} is a {type(norm).__name__}, whose scale cannot be frozen")


def linear_step(name: str, part: nn.Linear) -> FrozenStep:
    return FrozenStep(name, lambda x: x @ upcast(part.weight).T, None if part.bias is None else upcast(part.bias))


def gate_step(name: str, z: Tensor, found: Tensor) -> FrozenStep:
    """An activation as a gate. All activations here are 0 at 0, where any gate will do."""
    z, found = upcast(z), upcast(found)
    gate = torch.where(z == 0, 0.0, found / torch.where(z == 0, 1.0, z))
    return FrozenStep(name, lambda x: x * gate, frozen=True)


def word_step(name: str, head: LanguageModelHead, tokens: Tokens | None, shape: tuple[int, ...]) -> FrozenStep:
    """The logits of some tokens: the same at all positions, or one token for each position of `shape` (batch seq)."""
    if tokens is None or len(tokens) == 0:
        raise InputError("tokens are missing: name those whose logits are to be decomposed")
    chosen = _numbers("token", tokens, len(head.matrix), head.matrix.device)
    if chosen.ndim != 1 and chosen.shape != shape:
        raise InputError(
            f"tokens of shape {tuple(chosen.shape)} for positions of shape {tuple(shape)}: "
            "give a list that is the same everywhere, or one token for each position that is kept"
        )
    bias = None if head.bias is None else upcast(head.bias[chosen])
    rows = upcast(head.matrix[chosen]) * head.scale
    if chosen.ndim == 1:
        return FrozenStep(name, lambda x: x @ rows.T, bias)
    return FrozenStep(name, lambda x: (x * rows).sum(-1, keepdim=True), None if bias is None else bias[..., None])


@dataclass(frozen=True, eq=False)
class FrozenReading:
    """What the model's head read in a run: the hidden states at `positions` of a sequence of `length`."""

    hidden: Hidden
    real: Bool[Tensor, "batch seq"] | None
    positions: tuple[int, ...] | None
    length: int

    def pool_step(self, name: str, pool: nn.Module) -> tuple[FrozenStep, Tensor]:
        """The weighted sum of states that a head reads for the whole sequence, and its value."""
        batch, device = len(self.hidden), self.hidden.device
        places = torch.arange(self.length, device=device)
        real = torch.ones(batch, self.length, dtype=torch.bool, device=device) if self.real is None else self.real
        if isinstance(pool, Mean):
            share = real.to(self.hidden.dtype) / real.sum(dim=1, keepdim=True).clamp(min=1)
        elif isinstance(pool, (First, Pooler)):
            share = places == real.int().argmax(dim=1)[:, None]
        else:  # the last
            share = places == (places * real).amax(dim=1)[:, None]
        share = share.to(self.hidden.dtype)
        kept = share if self.positions is None else share[:, list(self.positions)]
        if not torch.allclose(kept.sum(dim=1), share.sum(dim=1)):
            raise InputError(f"{name} reads positions that are not among positions={list(self.positions or ())}")
        pooled = torch.einsum("bs,bsd->bd", kept, self.hidden)
        return FrozenStep(name, lambda x: torch.einsum("bs,wbsd->wbd", upcast(kept), x)), pooled

    def steps(self, head: nn.Module, tokens: Tokens | None, name: str = "head") -> list[FrozenStep]:
        """The steps from the hidden states to the logits of `tokens`, or of labels (None: all of them)."""
        match head:
            case PretrainingHead():
                return self.steps(head.masked, tokens, f"{name}.masked")
            case LanguageModelHead():
                return [word_step(name, head, tokens, self.hidden.shape[:2])]
            case MaskedLanguageModelHead():
                z = head.dense(self.hidden)
                found = head.activation(z)
                with watch(head.norm, "scale") as seen:
                    head.norm(found)
                norm = norm_step(f"{name}.norm", head.norm, upcast(seen["scale"]))
                gate = gate_step(f"{name}.activation", z, found)
                return [
                    linear_step(f"{name}.dense", head.dense),
                    gate,
                    norm,
                    word_step(f"{name}.words", head.words, tokens, self.hidden.shape[:2]),
                ]
            case TaggingHead():
                return [_classes(f"{name}.classes", head.classes, tokens)]
            case LastTokenHead():
                pool, _ = self.pool_step(name, head)
                return [pool, _classes(f"{name}.classes", head.classes, tokens)]
            case ClassificationHead() | NextSentenceHead():
                pool, state = self.pool_step(f"{name}.pool", head.pool)
                steps = [pool]
                if isinstance(head.pool, Pooler):
                    z = head.pool.dense(state)
                    steps.append(linear_step(f"{name}.pool.dense", head.pool.dense))
                    steps.append(gate_step(f"{name}.pool.activation", z, head.pool.activation(z)))
                return [*steps, _classes(f"{name}.classes", head.classes, tokens)]
        raise InputError(f"{type(head).__name__} gives no scores that could be decomposed")


def _classes(name: str, part: nn.Linear, labels: Tokens | None) -> FrozenStep:
    if labels is None:
        return linear_step(name, part)
    chosen = _numbers("label", labels, len(part.weight), part.weight.device)
    if chosen.ndim != 1:
        raise InputError("labels are the same for all rows: give their numbers in a list")
    return FrozenStep(
        name, lambda x: x @ upcast(part.weight[chosen]).T, None if part.bias is None else upcast(part.bias[chosen])
    )


def _numbers(what: str, given: Tokens, n: int, device: torch.device) -> Tensor:
    """The numbers of rows of a matrix with `n` rows, checked: negative ones would count from the end."""
    chosen = torch.as_tensor(given, device=device)
    if chosen.dtype.is_floating_point or chosen.dtype == torch.bool:
        raise InputError(f"{what}s are whole numbers, not {chosen.dtype}")
    outside = chosen[(chosen < 0) | (chosen >= n)]
    if len(outside):
        raise InputError(f"{what} {int(outside[0])} is outside 0…{n - 1}")
    return chosen
