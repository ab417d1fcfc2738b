"""Attribution by attention, followed through all blocks.

An attention pattern says where each head looks, in one block. Two corrections make it more of an explanation:

    rollout         R ← ½ A R + ½ R, block by block          what a position holds is mixed from positions below
                                                             (Abnar & Zuidema 2020)
    value-weighted  ‖Σₕ αₕ vₕ Wₕ‖ in place of α              a head may look at a word and take nothing from it
                                                             (Kobayashi et al. 2020)

    attention_rollout(model, ids)[0].scores[-1]         # where what the last position holds comes from
    value_weighted(model, ids).heads["decoder.3.attention"][0, 7]

In an encoder–decoder, a target position mixes itself, the target positions before it, and through cross-attention the
encoder's output: its row covers the source and the target, and sums to 1. Neither method proves what matters;
`deletion_curve` measures how faithful they are.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.residual.decompose import check_blocks, check_model
from cutaway.model.attention import Attention, repeat_heads
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import watch
from cutaway.model.upcast import upcast

Pattern = Float[Tensor, "batch head query key"]
Mixing = Float[Tensor, "batch query key"]


@dataclass(frozen=True, eq=False)
class ValueWeightedAttention:
    """The norm of what each attention (`decoder.3.attention`, `decoder.3.cross`) moves from key to query."""

    heads: dict[str, Float[Tensor, "batch head query key"]]
    layers: dict[str, Float[Tensor, "batch query key"]]  # of the sum over all heads

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            name: {part: lengths.tolist() for part, lengths in getattr(self, name).items()}
            for name in ("heads", "layers")
        }


@checked
@torch.no_grad()
def value_weighted(model: nn.Module, *inputs: Tensor, **more: Any) -> ValueWeightedAttention:
    """How much each head moves from each key to each query, and all heads of an attention together.

    >>> value_weighted(model, ids).heads["decoder.0.attention"].shape
    """
    model = check_model(model, more)
    names = attention_parts(model)
    with watch(model, *[f"{name}.{tap}" for name in names for tap in ("pattern", "value")]) as seen:
        model.hidden(*inputs, **more)
    heads, layers = {}, {}
    for name, attention in names.items():
        pattern, value = (upcast(seen[f"{name}.{tap}"]) for tap in ("pattern", "value"))
        handed = projected_values(attention, value)
        heads[name] = pattern * handed.norm(dim=-1)[:, :, None]
        layers[name] = _together(pattern, handed)
    return ValueWeightedAttention(heads, layers)


def projected_values(
    attention: Attention, value: Float[Tensor, "batch kv_head key d_head"]
) -> Float[Tensor, "batch head key d_model"]:
    """Each head's values through its part of W_O: what it writes for a query that looks at one key alone.

    Weighted by the pattern and summed over keys and heads, this is the output of the attention without its bias.
    """
    if isinstance(attention.output, Int8Linear):
        raise InputError("this model's weights are 8-bit integers: load it with precision='fp32'")
    each = attention.output.weight.to(value.dtype).unflatten(1, (attention.n_heads, attention.d_head))
    return torch.einsum("bhkd,mhd->bhkm", repeat_heads(value, attention.n_heads), each)


def _together(pattern: Pattern, handed: Float[Tensor, "batch head key d_model"]) -> Mixing:
    """‖Σₕ αₕ fₕ‖ for every query and key, from the dot products of heads, without a vector for each pair."""
    dots = torch.einsum("bhkm,bgkm->bkhg", handed, handed)
    squares = torch.einsum("bhqk,bgqk,bkhg->bqk", pattern, pattern, dots)
    return squares.clamp(min=0).sqrt()


def attention_parts(model: Model) -> dict[str, Attention]:
    """Every attention of a Transformer, by the name of its taps."""
    check_blocks(model)
    return {name: part for name, part in model.named_modules() if isinstance(part, Attention)}


@checked
@torch.no_grad()
def attention_rollout(
    model: nn.Module, *inputs: Tensor, heads: str = "mean", weights: str = "pattern", residual: float = 0.5, **more: Any
) -> list[Attribution]:
    """For each row of the batch, where the content of every position comes from; rows of the scores sum to 1.

    >>> attention_rollout(model, ids)[0].scores[-1]

    `heads` is "mean", or "max" (normalised). `weights="moved"` uses `value_weighted` instead of the patterns.
    `residual` is the share that a position keeps of itself.
    """
    model = check_model(model, more)
    if heads not in ("mean", "max") or weights not in ("pattern", "moved"):
        raise InputError(
            f'heads={heads!r}, weights={weights!r}: heads is "mean" or "max", weights "pattern" or "moved"'
        )
    if not 0 <= residual < 1:
        raise InputError(f"residual={residual} is not at least 0 and below 1")
    if weights == "moved":
        mixing = {name: _share(moved) for name, moved in value_weighted(model, *inputs, **more).layers.items()}
    else:
        with watch(model, *[f"{name}.pattern" for name in attention_parts(model)]) as seen:
            model.hidden(*inputs, **more)
        patterns = {name.removesuffix(".pattern"): upcast(pattern) for name, pattern in seen.items()}
        mixing = {
            name: pattern.mean(dim=1) if heads == "mean" else _share(pattern.amax(dim=1))
            for name, pattern in patterns.items()
        }
    return _told(
        model, roll_out(model, mixing, residual), "value_weighted" if weights == "moved" else "attention_rollout"
    )


def roll_out(model: Model, mixing: dict[str, Mixing], residual: float) -> Float[Tensor, "batch output input"]:
    """The product of the mixing matrices of all blocks."""
    read: Tensor | None = None
    for side in ("encoder", "decoder"):
        stack = getattr(model, side, None)
        if stack is None:
            continue
        first = mixing[f"{side}.0.attention"]
        held = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device).expand(len(first), -1, -1)
        if read is not None:  # columns for the source come first
            held = torch.cat([held.new_zeros(*held.shape[:2], read.shape[-1]), held], dim=-1)
            read = torch.cat([read, read.new_zeros(*read.shape[:2], held.shape[1])], dim=-1)
        for layer in range(len(stack)):
            held = (1 - residual) * mixing[f"{side}.{layer}.attention"] @ held + residual * held
            if read is not None:
                held = (1 - residual) * mixing[f"{side}.{layer}.cross"] @ read + residual * held
        read = held
    if read is None:
        raise InputError(
            f"{type(model).__name__} has neither an encoder nor a decoder, so attention cannot be rolled out"
        )
    return read


def _told(model: Model, scores: Float[Tensor, "batch output input"], method: str) -> list[Attribution]:
    n_output, n_input = scores.shape[1:]
    across = isinstance(model, EncoderDecoderModel)
    return [
        Attribution(
            method=method,
            scores=of_row,
            inputs=tuple(map(str, range(n_input))),
            outputs=tuple(map(str, range(n_output))),
            total=of_row.sum(dim=-1),
            parts=(n_input - n_output, n_output) if across else (),
        )
        for of_row in scores
    ]


def _share(weights: Mixing) -> Mixing:
    """Rows that sum to 1; a row of zeros stays zero."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
