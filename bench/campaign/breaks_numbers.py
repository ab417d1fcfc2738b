"""Broken positions, and attention."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from campaign.breaks import breaks, instead

from cutaway.families import bert, llama
from cutaway.model import attention, embeddings, positions
from cutaway.model import model as models
from cutaway.model.kernels import attend as kernels_attend
from cutaway.model.masks import Mask

# --- positions --------------------------------------------------------------------------------------------------------


@breaks("positions", "gpt2")
@breaks("positions", "transformer", "int8")
def _padding_has_positions(model: Any) -> Iterator[None]:
    """padding on the left takes positions"""
    with instead(
        models, "positions_of", lambda right: lambda ids, real=None, documents=None: right(ids, None, documents)
    ):
        yield


@breaks("positions", "bert", max_len=64)
@breaks("positions", "roberta")
def _positions_of_documents(model: Any) -> Iterator[None]:
    """positions do not begin anew with each document of a packed row"""
    with instead(bert, "positions_of", lambda right: lambda ids, real=None, documents=None: right(ids, real)):
        yield


@breaks("positions", "llama", rotary_base=500.0)
@breaks("positions", "llama-window", "int8", rotary_base=500.0, max_len=64)
def _base_with_a_cache(model: Any) -> Iterator[None]:
    """with a cache, RoPE turns by another base"""
    usual = positions.Rotary(model.rotary.d_head).frequencies

    def hidden(right: Any) -> Any:
        def wrong(self: Any, ids: Any, **more: Any) -> Any:
            own = self.rotary.frequencies
            self.rotary.frequencies = own if more.get("cache") is None else usual
            try:
                return right(self, ids, **more)
            finally:
                self.rotary.frequencies = own

        return wrong

    with instead(llama.Llama, "hidden", hidden):
        yield


@breaks("positions", "llama", max_len=300)
def _angles_in_bfloat16(model: Any) -> Iterator[None]:
    """positions are bfloat16 before they become angles: 257 is 256"""
    with instead(positions.Rotary, "forward", lambda right: lambda self, at: right(self, at.bfloat16().float())):
        yield


@breaks("positions", "transformer-rotary")
def _frequencies_in_bfloat16(model: Any) -> Iterator[None]:
    """RoPE's frequencies went through bfloat16 with the weights"""
    model.rotary.frequencies = model.rotary.frequencies.bfloat16().float()
    yield


@breaks("positions", "transformer", max_len=64)
@breaks("positions", "transformer-pre-norm", positions="sinusoidal_halves", max_len=64)
def _table_not_filled(model: Any) -> Iterator[None]:
    """the table of sinusoids is empty from position 40 on: nobody filled it after the model was moved"""
    for embedding in (model.source_embedding, model.target_embedding):
        embedding.positions.table[40:] = 0.0
    yield


@breaks("positions", "gpt2", max_len=64)
def _clamped(model: Any) -> Iterator[None]:
    """positions stop at 47 of 64"""
    with instead(positions.Learned, "forward", lambda right: lambda self, at: right(self, at.clamp(max=47))):
        yield


@breaks("positions", "roformer")
def _interleaved(model: Any) -> Iterator[None]:
    """RoPE turns neighbours together, and the weights are for halves"""

    def turn(self: Any, x: Any) -> Any:
        first, second = x[..., ::2], x[..., 1::2]
        turned = first * self.cos - second * self.sin, second * self.cos + first * self.sin
        return torch.stack(turned, dim=-1).flatten(-2)

    with patch.object(positions.Rotation, "__call__", turn):
        yield


@breaks("positions", "t5")
@breaks("positions", "t5", "int8")
def _bias_of_the_first_query(model: Any) -> Iterator[None]:
    """a token that is read alone gets the bias of the first query"""

    def forward(right: Any) -> Any:
        return lambda self, query, key: right(self, query * (query.shape[1] > 1), key)

    with instead(positions.RelativeBias, "forward", forward):
        yield


@breaks("positions", "t5")
def _distance_clamped(model: Any) -> Iterator[None]:
    """distances beyond 100 count as 0"""

    def bucket(right: Any) -> Any:
        return lambda self, ahead: right(self, ahead.masked_fill(ahead.abs() > 100, 0))

    with instead(positions.RelativeBias, "bucket", bucket):
        yield


@breaks("positions", "t5")
def _distance_with_a_cache(model: Any) -> Iterator[None]:
    """with a cache, distances are clamped at 20"""

    def forward(right: Any) -> Any:
        def wrong(self: Any, query: Any, key: Any) -> Any:
            return right(self, query, torch.maximum(key, query - 20) if query.shape[1] == 1 else key)

        return wrong

    with instead(positions.RelativeBias, "forward", forward):
        yield


@breaks("positions", "bert")
def _segments(model: Any) -> Iterator[None]:
    """in a batch, every token is of the first segment"""

    def forward(right: Any) -> Any:
        return lambda self, ids, at, segments=None: right(self, ids, at, segments if len(ids) == 1 else None)

    with instead(embeddings.Embedding, "forward", forward):
        yield


# --- attention --------------------------------------------------------------------------------------------------------


@breaks("attention", "t5")
def _scaled_twice(model: Any) -> Iterator[None]:
    """the fused kernel divides by √d, which T5 does not"""
    with instead(attention, "attend", lambda right: lambda *a, **k: right(*a, **k | {"scale": None})):
        yield


@breaks("attention", "gpt2")
@breaks("attention", "roformer", "int8")
def _softcap(model: Any) -> Iterator[None]:
    """scores are capped where they are written out, and not in the fused kernel"""
    with instead(attention, "scores_of", lambda right: lambda *a, **k: 5 * (right(*a, **k) / 5).tanh()):
        yield


@breaks("attention", "llama")
def _groups_repeated(model: Any) -> Iterator[None]:
    """groups of heads that share keys are repeated in the wrong order"""

    def repeat(x: Any, n: int) -> Any:
        return x.repeat(1, n // x.shape[1], 1, 1)

    with patch.object(attention, "repeat_heads", repeat):
        yield


@breaks("attention", "vit")
@breaks("attention", "transformer-rotary")
def _last_head(model: Any) -> Iterator[None]:
    """the fused kernel leaves the last head out"""

    def fused(right: Any) -> Any:
        return lambda *a, **k: torch.cat([(found := right(*a, **k))[:, :-1], 0 * found[:, -1:]], dim=1)

    with instead(attention, "attend", fused):
        yield


@breaks("attention", "gpt2")
@breaks("attention", "transformer", "int8")
def _few_without_a_mask(model: Any) -> Iterator[None]:
    """the way for few queries has no mask"""

    def few(right: Any) -> Any:
        return lambda query, key, value, table, scale: right(query, key, value, None, scale)

    with instead(kernels_attend, "_attend_few", few):
        yield


@breaks("attention", "bert", max_len=128)
def _half_beyond_64(model: Any) -> Iterator[None]:
    """beyond 64 keys the fused kernel rounds queries to bfloat16"""

    def fused(right: Any) -> Any:
        def wrong(query: Any, key: Any, *a: Any, **k: Any) -> Any:
            return right(query.bfloat16().to(query.dtype) if key.shape[2] > 64 else query, key, *a, **k)

        return wrong

    with instead(attention, "attend", fused):
        yield


@breaks("attention", "llama-window")
def _causal_only(model: Any) -> Iterator[None]:
    """a row without padding goes to a causal kernel that knows no window"""

    def fused(right: Any) -> Any:
        def wrong(query: Any, key: Any, value: Any, mask: Any, **k: Any) -> Any:
            alone = len(query) == 1 and query.shape[2] == key.shape[2]
            return right(query, key, value, Mask(causal=True) if alone else mask, **k)

        return wrong

    with instead(attention, "attend", fused):
        yield
