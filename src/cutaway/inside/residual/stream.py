"""The residual stream as a sum of what each part of the model wrote into it.

In a pre-norm model, the stream is the sum of what embeddings, heads, feed-forwards and biases wrote:

    x = tokens + positions + Σ head · W_O + Σ feed_forward(…) + biases

In a post-norm model (2017, BERT), every norm is frozen at its scale in this run, and its bias is one more writer; each
vector is then what arrives at the end. `to_logits` continues through the final norm and the unembedding to the logit of
a token: direct logit attribution (Elhage et al. 2021). Everything adds up exactly.

    found = decompose_residual(model, ids, positions=[-1])
    found.sum("decoder.3.*")                     # batch seq d_model
    found.to_logits([right, wrong]).scores       # writer batch seq token
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.residual.decompose import (
    AFTER,
    DecomposedRun,
    Ledger,
    block_parts,
    check_blocks,
    check_model,
    embedding_name,
    stack_taps,
)
from cutaway.inside.residual.frozen_norms import FrozenReading, FrozenStep, Tokens
from cutaway.model.encoder import Stack
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import Seen, watch

Stream = Float[Tensor, "batch seq d_model"]


@dataclass(frozen=True, eq=False)
class LogitDecomposition:
    """What each writer adds to the logit of each token. `frozen` names the steps that were frozen to make it a sum."""

    names: tuple[str, ...]
    scores: Float[Tensor, "writer batch *seq token"]
    tokens: tuple[int, ...] | Int[Tensor, "batch seq"] | None
    positions: tuple[int, ...] | None
    frozen: tuple[str, ...]

    def total(self) -> Float[Tensor, "batch *seq token"]:
        """The logits."""
        return self.scores.sum(dim=0)

    def sum(self, pattern: str) -> Float[Tensor, "batch *seq token"]:
        return _sum(pattern, self.names, self.scores)

    def to_dict(self) -> dict[str, Any]:
        tokens = self.tokens.tolist() if isinstance(self.tokens, Tensor) else self.tokens
        return {
            "names": list(self.names),
            "scores": self.scores.tolist(),
            "tokens": None if tokens is None else list(tokens),
            "positions": None if self.positions is None else list(self.positions),
            "frozen": list(self.frozen),
        }


@dataclass(frozen=True, eq=False)
class ResidualDecomposition:
    """The writers of a stream up to `at`, and the vector of each that arrives there."""

    names: tuple[str, ...]
    vectors: Float[Tensor, "writer batch seq d_model"]
    at: str
    stream: Stream  # its value in the run: the sum of the vectors
    positions: tuple[int, ...] | None
    frozen: tuple[str, ...]  # norms on the way: in pre-norm models only the embedding's
    _model: Model = field(repr=False)
    _reading: FrozenReading | None = field(repr=False)  # None if no head reads the stream at `at`
    _final: FrozenStep | None = field(repr=False)

    def total(self) -> Stream:
        return self.vectors.sum(dim=0)

    def sum(self, pattern: str) -> Stream:
        """The sum over the writers that match a pattern such as `decoder.3.*`."""
        return _sum(pattern, self.names, self.vectors)

    def logits(self) -> Float[Tensor, "batch *seq token"]:
        """The logits of this run at the positions that were kept; a classifier has none."""
        reading = self._read()
        with torch.no_grad():
            return self._model.head(reading.hidden, reading.real if reading.positions is None else None)

    def _read(self) -> FrozenReading:
        if self._reading is None:
            raise InputError(f"no head reads {self.at}: leave out at=, for the stream that ends in logits")
        return self._reading

    def to_logits(self, tokens: Tokens | None = None) -> LogitDecomposition:
        """What each writer adds to the logits of `tokens` (or labels), through the final norm and the head.

        Tokens are the same for all positions, or a tensor (batch seq) with one for each position that was kept. The
        bias of the head is a writer.
        """
        reading = self._read()
        steps = [] if self._final is None else [self._final]
        with torch.no_grad():
            steps += reading.steps(self._model.head, tokens)
            ledger = Ledger(list(self.names), [self.vectors], list(self.frozen))
            for step in steps:
                ledger.through(step)
        kept = tokens if isinstance(tokens, Tensor) or tokens is None else tuple(tokens)
        scores = torch.cat(ledger.chunks).detach()
        return LogitDecomposition(tuple(ledger.names), scores, kept, self.positions, tuple(ledger.frozen))

    def to_dict(self) -> dict[str, Any]:
        """The norm of each vector, and its share of the stream; the shares add up to 1."""
        share = (self.vectors * self.stream).sum(-1) / self.stream.square().sum(-1)
        return {
            "names": list(self.names),
            "at": self.at,
            "positions": None if self.positions is None else list(self.positions),
            "frozen": list(self.frozen),
            "sizes": self.vectors.norm(dim=-1).tolist(),
            "shares": share.tolist(),
        }


@checked
@torch.no_grad()
def decompose_residual(
    model: Model,
    *inputs: Tensor,
    stream: Literal["encoder", "decoder"] | None = None,
    at: str | None = None,
    positions: Sequence[int] | None = None,
    cross: Literal["heads", "source", "encoder"] = "heads",
    **more: Any,
) -> ResidualDecomposition:
    """Runs the model once and decomposes a residual stream.

    >>> decompose_residual(model, ids, positions=[-1]).to_logits([3, 5]).scores.shape

    `stream` is "decoder" by default, where there is one. `at` is a tap of the stream (`decoder.3.residual_before`); by
    default its end, before the final norm. Only `positions` of the stream are kept.

    The output of the cross-attention heads of an encoder–decoder can be split by `source` position
    (`decoder.3.cross.7 < 4`), or by writer of the `encoder`, whose vectors reach the target through the head's values,
    with its pattern as in the run (`decoder.3.cross.7 < encoder.1.attention.2`).
    """
    model = check_model(model, more)
    side = _side(model, stream, at)
    if cross != "heads" and not (side == "decoder" and isinstance(model, EncoderDecoderModel)):
        raise InputError(f"cross={cross!r}: {side} of {model.config.family} has no cross-attention to split")
    stack: Stack = getattr(model, side)
    end = f"{side}.{len(stack) - 1}.residual_after"
    at = end if at is None else at
    _check_at(at, side, stack)
    chosen = [at, *stack_taps(side, stack), *([f"{side}.*.cross.pattern"] if cross != "heads" else [])]
    whole = [f"{embedding_name(model, side)}.*"]
    if cross != "heads":
        whole.append(f"{side}.*.cross.value")
    if cross == "encoder":
        whole += ["source_embedding.*", *stack_taps("encoder", model.encoder)]  # type: ignore[arg-type]
    with watch(model, *chosen, positions=positions) as seen, watch(model, *whole) as all_of:
        hidden = model.hidden(*inputs, **more)
    length = all_of[f"{embedding_name(model, side)}.output"].shape[1]
    kept = None if positions is None else tuple(position % length for position in positions)
    opened = DecomposedRun(model, side, Seen({**all_of, **seen}), kept, cross)
    ledger = opened.ledger(at)
    reading = final = None
    if at == end and (side == "decoder" or not isinstance(model, EncoderDecoderModel)):
        reading = FrozenReading(hidden if kept is None else hidden[:, list(kept)], more.get("real"), kept, length)
        final = opened.final_norm()
    vectors, frozen = torch.cat(ledger.chunks).detach(), tuple(ledger.frozen)
    return ResidualDecomposition(
        tuple(ledger.names), vectors, at, seen[at].to(vectors.dtype), kept, frozen, model, reading, final
    )


def _side(model: Model, stream: str | None, at: str | None) -> str:
    check_blocks(model)
    own = [side for side in ("decoder", "encoder") if isinstance(getattr(model, side, None), Stack)]
    side = stream or (own[0] if at is None else at.partition(".")[0])
    if side not in own:
        raise InputError(f"no stream {side!r}: this model has {' and '.join(own)}")
    return side


def _check_at(at: str, side: str, stack: Stack) -> None:
    places = [f"{side}.{layer}.residual_before" for layer in range(len(stack))]
    places += [f"{side}.{layer}.{AFTER[name]}" for layer, block in enumerate(stack) for name, _ in block_parts(block)]
    if at not in places:
        raise InputError(f"at={at!r} is not in the stream of the {side}: choose one of {', '.join(sorted(places))}")


def _sum(pattern: str, names: Sequence[str], values: Tensor) -> Tensor:
    chosen = [number for number, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not chosen:
        raise InputError(f"no writer matches {pattern!r}: there are {', '.join(names[:8])} …")
    return values[chosen].sum(dim=0)
