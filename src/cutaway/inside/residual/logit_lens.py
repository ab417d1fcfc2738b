"""The logit lens: what a model would answer if it stopped after layer k.

The final norm and the head read the residual stream of every layer as they read the last one (nostalgebraist 2020).
A `TunedLens` first maps the stream of an early layer to the terms of the last. The encoder of a translator has no head:
there the *decoder* reads the stream of layer k as if it were the encoder's output (Langedijk et al. 2023).

    found = logit_lens(model, ids, tokens=[right, wrong])
    found.top_tokens[layer, row, position]        # the likeliest, and found.top_probabilities
    found.answer_rank[layer, row, position]       # of what the last layer says: 0 is the likeliest

Logits are computed for a few positions of one layer at a time, to save memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.residual.decompose import check_blocks, check_model
from cutaway.model.encoder import Stack
from cutaway.model.finite import check_scores
from cutaway.model.heads import ClassificationHead, HiddenStates, LastTokenHead, NextSentenceHead
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import watch
from cutaway.model.upcast import upcast

AT_ONCE = 1 << 24  # logits in memory at a time
POOLED = (ClassificationHead, LastTokenHead, NextSentenceHead)
Hidden = Float[Tensor, "batch seq d_model"]


@runtime_checkable
class Translator(Protocol):
    """What a tuned lens does: it maps the stream of a layer to that of the last one."""

    def check(self, model: Model, layers: Sequence[str]) -> None: ...

    def translate(self, layer: str, x: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Lens:
    """What each layer answers at each position; a classifier has one position. Entropy and KL are in nats."""

    layers: tuple[str, ...]  # taps; the last one is the answer of the model
    positions: tuple[int, ...] | None
    top_tokens: Int[Tensor, "layer batch seq top"]
    top_probabilities: Float[Tensor, "layer batch seq top"]
    entropy: Float[Tensor, "layer batch seq"]
    kl: Float[Tensor, "layer batch seq"]  # from the last layer: Σ p_last · log(p_last / p_layer)
    answer: Int[Tensor, "batch seq"]  # the most likely answer of the last layer;
    answer_rank: Int[Tensor, "layer batch seq"]  # in each layer, how many are more likely,
    answer_probability: Float[Tensor, "layer batch seq"]
    tokens: tuple[int, ...]  # tokens that were asked for, with the same numbers
    token_rank: Int[Tensor, "layer batch seq token"]
    token_probability: Float[Tensor, "layer batch seq token"]

    def to_dict(self) -> dict[str, Any]:
        return {
            name: value.tolist() if isinstance(value, Tensor) else None if value is None else list(value)
            for name, value in vars(self).items()
        }


@torch.no_grad()
def lens_of_states(model: Model, states: Mapping[str, Hidden], *, top: int = 5, tokens: Sequence[int] = ()) -> Lens:
    """The lens of residual streams that were watched in the decoder, such as those of a text while it was generated.

    `states` are streams by their taps, the last layer's last; the final norm and the head read each of them.
    """
    stack = model.decoder
    normed = {tap: x if stack.final_norm is None else stack.final_norm(x) for tap, x in states.items()}  # type: ignore[union-attr,operator]
    seen = _looked(list(normed.values()), model.head, None, top, tuple(tokens))
    return Lens(layers=tuple(states), positions=None, tokens=tuple(tokens), **seen)


@checked
@torch.no_grad()
def logit_lens(
    model: Model,
    *inputs: Tensor,
    stream: Literal["encoder", "decoder"] | None = None,
    positions: Sequence[int] | None = None,
    top: int = 5,
    tokens: Sequence[int] = (),
    tuned: Translator | None = None,
    **more: Any,
) -> Lens:
    """Reads every layer as the last one is read.

    >>> logit_lens(model, ids, tokens=[3, 5]).token_rank.shape

    `stream` is "decoder" by default, where there is one; the encoder of an encoder–decoder is read by its decoder, and
    positions are those of the target. `tokens` are followed through the layers. `tuned` is a TunedLens of this model.
    """
    model = check_model(model, more)
    if isinstance(model.head, HiddenStates):
        raise InputError("this model has no head, which a lens needs: task='hidden'")
    if isinstance(model.head, POOLED) and positions is not None:
        raise InputError(f"{type(model.head).__name__} reads the positions that it needs: leave out positions=")
    states = residual_streams(model, *inputs, stream=stream, positions=positions, tuned=tuned, **more)
    length = inputs[-1].shape[1]
    kept = None if positions is None else tuple(position % length for position in positions)
    if top < 1:
        raise InputError(f"top={top} must be at least 1")
    seen = _looked(list(states.values()), model.head, more.get("real"), top, tuple(tokens))
    check_scores(model, seen["entropy"][-1], seen["answer_probability"])
    return Lens(layers=tuple(states), positions=kept, tokens=tuple(tokens), **seen)


def residual_streams(
    model: Model,
    *inputs: Tensor,
    stream: str | None = None,
    positions: Sequence[int] | None = None,
    tuned: Translator | None = None,
    normed: bool = True,
    **more: Any,
) -> dict[str, Hidden]:
    """The stream before the first layer and after every layer, after the final norm (`normed`)."""
    check_blocks(model)
    side = stream or ("decoder" if isinstance(getattr(model, "decoder", None), Stack) else "encoder")
    stack = getattr(model, side, None)
    if not isinstance(stack, Stack):
        raise InputError(f"{type(model).__name__} has no stream {side!r}")
    across = side == "encoder" and isinstance(model, EncoderDecoderModel)
    if across and tuned is not None:
        raise InputError(
            "a tuned lens is for streams that the head reads, and an encoder's is read by the decoder: leave it out"
        )
    taps = [f"{side}.0.residual_before", *(f"{side}.{layer}.residual_after" for layer in range(len(stack)))]
    with watch(model, *taps, positions=None if across else positions) as seen:
        if across:
            model.encode(inputs[0], more.get("source_real"))  # type: ignore[operator]
        else:
            model.hidden(*inputs, **more)
    found = {tap: seen[tap] for tap in taps}
    if tuned is not None:
        tuned.check(model, taps)
        found = {tap: tuned.translate(tap, x) for tap, x in found.items()}
    if normed and stack.final_norm is not None:
        found = {tap: stack.final_norm(x) for tap, x in found.items()}
    return found if not across else {tap: _decoded(model, x, inputs[1], positions, more) for tap, x in found.items()}


def _decoded(
    model: Model, memory: Tensor, ids: Tensor, positions: Sequence[int] | None, more: dict[str, Any]
) -> Hidden:
    """The hidden states of the decoder for a memory."""
    assert isinstance(model, EncoderDecoderModel)
    hidden = model.decode(ids, memory=memory, memory_real=more.get("source_real"), real=more.get("real"))
    if positions is None:
        return hidden
    for position in positions:
        if not -ids.shape[1] <= position < ids.shape[1]:
            raise InputError(f"position {position} of the target: it has {ids.shape[1]}, 0 … {ids.shape[1] - 1}")
    return hidden[:, list(positions)]


def _looked(
    states: list[Hidden], head: nn.Module, real: Tensor | None, top: int, tokens: tuple[int, ...]
) -> dict[str, Tensor]:
    """The fields of a Lens, computed for some rows at a time."""
    pooled = isinstance(head, POOLED)
    shape = (len(states[0]), 1) if pooled else tuple(states[0].shape[:2])
    flat = states if pooled else [state.flatten(0, 1) for state in states]

    def logits(layer: int, some: slice) -> Tensor:
        found = (
            head(flat[layer][some], None if real is None else real[some])
            if pooled
            else head(flat[layer][some][None])[0]
        )
        return upcast(found)

    n_scores = logits(0, slice(1)).shape[-1]
    for token in tokens:
        if not 0 <= token < n_scores:
            raise InputError(f"token {token} is outside 0…{n_scores - 1}")
    rows, parts = max(1, AT_ONCE // n_scores), []
    for start in range(0, len(flat[0]), rows):
        some = slice(start, start + rows)
        last = logits(-1, some)
        answer = last.argmax(-1)
        asked = torch.cat([answer[:, None], answer.new_tensor(tokens).expand(len(answer), -1)], dim=1)
        told = [
            _told(logits(layer, some), last.log_softmax(-1), asked, min(top, n_scores)) for layer in range(len(flat))
        ]
        parts.append({name: torch.stack([one[name] for one in told]) for name in told[0]} | {"answer": answer[None]})
    whole = {name: torch.cat([part[name] for part in parts], dim=1).unflatten(1, shape) for name in parts[0]}
    rank, probability = whole.pop("rank"), whole.pop("probability")
    return whole | {
        "answer": whole["answer"][0],
        "answer_rank": rank[..., 0],
        "answer_probability": probability[..., 0],
        "token_rank": rank[..., 1:],
        "token_probability": probability[..., 1:],
    }


def _told(
    logits: Float[Tensor, "row token"], last: Float[Tensor, "row token"], asked: Int[Tensor, "row asked"], top: int
) -> dict[str, Tensor]:
    """The numbers of one layer for some rows; `last` is log p of the last layer."""
    log_p = logits.log_softmax(-1)
    likeliest = log_p.topk(top)
    chosen = logits.gather(-1, asked)
    return {
        "top_tokens": likeliest.indices,
        "top_probabilities": likeliest.values.exp(),
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "kl": (last.exp() * (last - log_p)).sum(-1),
        "rank": torch.stack([(logits > own[:, None]).sum(-1) for own in chosen.unbind(1)], dim=1),
        "probability": log_p.gather(-1, asked).exp(),
    }
