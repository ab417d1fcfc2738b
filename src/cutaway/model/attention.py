"""Attention: a soft dictionary look-up.

    attention(Q, K, V) = softmax(QKᵀ / √d_head) V

Each query is compared with all keys at once, and the values are averaged with weights that say how well their keys
match. Several heads do this side by side; their results are concatenated and mixed by one linear map.
(Attention Is All You Need, section 3.2; Ainslie et al. 2023 for grouped queries.)

The functions of this file are the formula, one step after another. A model leaves it to `kernels.attend`, which gives
the same numbers faster and never stores the pattern. Only if the scores or the pattern are edited does it compute the
formula step by step; if they are only watched, they are computed besides, and no bit of the output changes.
"""

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.model.cache import KeysValues, Store
from cutaway.model.kernels.attend import Bias, Keys, Queries, Values, attend, attend_in_step
from cutaway.model.kernels.linear import Linear
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import EVERYWHERE, Mask
from cutaway.model.positions import Rotation
from cutaway.model.tap import Part


def scores_of(
    query: Queries, key: Keys, *, bias: Bias | None = None, scale: float | None = None
) -> Float[Tensor, "batch head query key"]:
    """QKᵀ / √d_head: how well each query matches each key, before the mask."""
    key = repeat_heads(key, query.shape[1])
    # 1/√d_head keeps the variance of the scores near 1, so that the softmax does not saturate
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores if bias is None else scores + bias


def pattern_of(
    scores: Float[Tensor, "batch head query key"], mask: Mask = EVERYWHERE
) -> Float[Tensor, "batch head query key"]:
    """Softmax over the keys that the mask permits. A query that may look nowhere gets zeros, not NaN."""
    may_look = mask.table(scores.shape[-2], scores.shape[-1], scores.device)
    if may_look is None:
        return scores.softmax(dim=-1)
    # the second fill turns the 0/0 of a query that may look nowhere into 0; its gradient ends at the first
    return scores.masked_fill(~may_look, float("-inf")).softmax(dim=-1).masked_fill(~may_look, 0.0)


def mix(pattern: Float[Tensor, "batch head query key"], value: Values) -> Float[Tensor, "batch head query d_value"]:
    """The mean of the values, weighted by the pattern."""
    return pattern @ repeat_heads(value, pattern.shape[1])


def attention(
    query: Queries,
    key: Keys,
    value: Values,
    mask: Mask = EVERYWHERE,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "batch head query d_value"]:
    """softmax(QKᵀ / √d_head) V, step by step. `scale` replaces 1/√d_head, and `bias` is added to the scores."""
    return mix(pattern_of(scores_of(query, key, bias=bias, scale=scale), mask), value)


def repeat_heads(x: Shaped[Tensor, "batch kv_head n m"], n_heads: int) -> Shaped[Tensor, "batch head n m"]:
    """Grouped queries: each head of keys or values is repeated for the heads that share it."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)


def split_heads(x: Float[Tensor, "batch seq width"], d_head: int) -> Float[Tensor, "batch head seq d_head"]:
    return x.unflatten(-1, (-1, d_head)).transpose(1, 2)


class Attention(Part):
    """What self-attention and cross-attention share: the formula with its taps, and the map that mixes the heads."""

    taps = {
        "query": "what each position asks, per head",
        "key": "what each position answers to, per head",
        "value": "what each position hands over, per head",
        "scores": "query · key, scaled, before the mask",
        "pattern": "the softmax of the scores: where each query looks",
        "heads": "what each head found, before the heads are mixed",
        "output": "what is written to the residual stream",
    }

    def __init__(
        self, d_model: int, n_heads: int, d_head: int | None, *, bias: bool, scale: float | None, dropout: float
    ) -> None:
        super().__init__()
        if d_head is None:
            if d_model % n_heads:
                raise ConfigError(f"d_model={d_model} is not divisible by n_heads={n_heads}")
            d_head = d_model // n_heads
        self.n_heads, self.d_head, self.scale, self.dropout = n_heads, d_head, scale, dropout
        self.output = Linear(n_heads * d_head, d_model, bias=bias)

    def attend(
        self,
        query: Float[Tensor, "rows head seq d_head"],
        key: Keys,
        value: Values,
        mask: Mask,
        bias: Bias | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "rows seq d_model"]:
        """All heads, side by side, mixed by the output map. Packed queries give packed results."""
        dropout = self.dropout if self.training else 0.0
        edited = self.edits("scores", "pattern")
        if edited or self.reads("scores", "pattern"):
            rows = query if packing is None else packing.spread_heads(query)
            scores = self.tap("scores", scores_of(rows, key, bias=bias, scale=self.scale))
            pattern = self.tap("pattern", pattern_of(scores, mask))
        if edited:
            heads = mix(F.dropout(pattern, dropout), value)
            heads = heads if packing is None else packing.gather_heads(heads)
        else:
            heads = attend(query, key, value, mask, bias=bias, scale=self.scale, dropout=dropout, packing=packing)
        if packing is not None and (self.reads("heads") or self.edits("heads")):  # a watch sees the heads in rows
            heads = packing.gather_heads(self.tap("heads", packing.spread_heads(heads)))
        else:
            heads = self.tap("heads", heads)
        return self.tap("output", self.output(heads.transpose(1, 2).flatten(2)))


class SelfAttention(Attention):
    """Each position looks at the positions of its own sequence. With fewer kv heads than heads, groups share keys."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        output_bias = bias if output_bias is None else output_bias
        super().__init__(d_model, n_heads, d_head, bias=output_bias, scale=scale, dropout=dropout)
        self.n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if n_heads % self.n_kv_heads:
            raise ConfigError(f"n_heads={n_heads} is not divisible by n_kv_heads={self.n_kv_heads}")
        # one matrix for queries, keys and values: one product reads x once
        self.widths = (n_heads * self.d_head, self.n_kv_heads * self.d_head, self.n_kv_heads * self.d_head)
        self.query_key_value = Linear(d_model, sum(self.widths), bias=bias)

    def forward(
        self,
        x: Float[Tensor, "rows seq d_model"],
        mask: Mask = EVERYWHERE,
        *,
        rotation: Rotation | None = None,
        bias: Bias | None = None,
        store: Store | None = None,
    ) -> Float[Tensor, "rows seq d_model"]:
        heads = split_heads(self.query_key_value(x), self.d_head)
        query, key, value = heads.split((self.n_heads, self.n_kv_heads, self.n_kv_heads), dim=1)
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        query, key, value = self.tap("query", query), self.tap("key", key), self.tap("value", value)
        if store is None:
            return self.attend(query, key, value, mask, bias)
        if bias is None and store.lengths is not None:
            where = store.keys, store.values, mask
            side_by_side = attend_in_step(query, *where, scale=self.scale, new=(key, value), lengths=store.lengths)
            if side_by_side is not None:
                return self.output(side_by_side)
        key, value = store.append(key, value)
        return self.attend(query, key, value, mask, bias, store.packing)


class CrossAttention(Attention):
    """Each position of the target looks at the encoder's output, the memory."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, n_heads, d_head, bias=bias, scale=scale, dropout=dropout)
        self.query = Linear(d_model, n_heads * self.d_head, bias=bias)
        self.key_value = Linear(d_model, 2 * n_heads * self.d_head, bias=bias)

    def remember(self, memory: Float[Tensor, "sentence source d_model"]) -> KeysValues:
        """The memory's keys and values, which are the same for every token of the target."""
        key, value = split_heads(self.key_value(memory), self.d_head).chunk(2, dim=1)
        return key, value

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        remembered: KeysValues,
        mask: Mask = EVERYWHERE,
        *,
        packing: Packing | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        query = self.tap("query", split_heads(self.query(x), self.d_head))
        side_by_side = attend_in_step(query, *remembered, mask, scale=self.scale)
        if side_by_side is not None:
            return self.output(side_by_side)
        key, value = (self.tap(name, kept) for name, kept in zip(("key", "value"), remembered, strict=True))
        return self.attend(query, key, value, mask, packing=packing)
