"""Attention: a soft dictionary look-up.

    attention(Q, K, V) = softmax(QKᵀ / √d_k) V

Each query is held against all keys at once, and the values are mixed by how well their keys match. Several heads look
for different things side by side; their findings are put next to each other and mixed by one linear map.
(Attention Is All You Need, section 3.2; Ainslie et al. 2023 for grouped queries.)

There are two ways to the same numbers. `look_up` writes the formula out, and has a pattern to show. `look_up_fused`
leaves it to PyTorch's kernel, which never writes the pattern down. A part takes the fused way unless somebody edits
the scores or the pattern; somebody who only reads them has them computed beside it, so that no output bit changes.
"""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from cutaway.errors import ConfigError
from cutaway.model.cache import KeysValues, Store
from cutaway.model.kernels import cpu, gpu_step, short_attention
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.linear import Linear
from cutaway.model.masks import EVERYWHERE, Mask, blind
from cutaway.model.positions import Rotation
from cutaway.model.tap import Part

Queries = Float[Tensor, "batch head query d_head"]
Keys = Float[Tensor, "batch kv_head key d_head"]  # grouped queries share keys
Values = Float[Tensor, "batch kv_head key d_value"]
Bias = Float[Tensor, "#batch head query key"]

# Not cuDNN: with a mask and 64 places its gradient is NaN where all scores of a query are below −88 (PyTorch #196678).
SOUND = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def scores_of(
    query: Queries, key: Keys, *, bias: Bias | None = None, scale: float | None = None
) -> Float[Tensor, "batch head query key"]:
    """How well each query matches each key, before anything is hidden."""
    key = for_all_heads(key, query.shape[1])
    # 1/√d_head keeps the variance of scores near 1, so that softmax does not saturate
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores if bias is None else scores + bias


def pattern_of(
    scores: Float[Tensor, "batch head query key"], mask: Mask = EVERYWHERE
) -> Float[Tensor, "batch head query key"]:
    """Softmax over the keys that may be seen. A query that may look nowhere gets zeros, not NaN."""
    may_look = mask.table(scores.shape[-2], scores.shape[-1], scores.device)
    if may_look is None:
        return scores.softmax(dim=-1)
    # the second fill turns the 0/0 of a query that may look nowhere into 0; its gradient ends at the first
    return scores.masked_fill(~may_look, float("-inf")).softmax(dim=-1).masked_fill(~may_look, 0.0)


def mix(pattern: Float[Tensor, "batch head query key"], value: Values) -> Float[Tensor, "batch head query d_value"]:
    """The values, weighted by the pattern."""
    return pattern @ for_all_heads(value, pattern.shape[1])


def for_all_heads(x: Shaped[Tensor, "batch few n m"], n_heads: int) -> Shaped[Tensor, "batch head n m"]:
    """Written out for every head of the groups that share it."""
    return x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], dim=1)


def look_up(
    query: Queries,
    key: Keys,
    value: Values,
    mask: Mask = EVERYWHERE,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "batch head query d_value"]:
    """The formula, written out."""
    return mix(pattern_of(scores_of(query, key, bias=bias, scale=scale), mask), value)


def look_up_fused(
    query: Queries,
    key: Keys,
    value: Values,
    mask: Mask = EVERYWHERE,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch head query d_value"]:
    """The same numbers from PyTorch's kernel."""
    n_query, n_key = query.shape[-2], key.shape[-2]
    table = mask.may_look
    causal = False
    if mask.causal and table is None and bias is None and n_query == n_key and n_query > 1:
        causal = True  # a branch, not a value: of a symbolic length the comparison would be no plain bool
    else:
        table = mask.table(n_query, n_key, query.device)
    if torch.compiler.is_compiling() and bias is None and dropout == 0.0 and short_attention.fits(query, key, value):
        return short_attention.look_up_short(query, key, value, table, causal=causal, scale=scale)
    nowhere = mask.blind
    if nowhere is None and table is not None and not mask.none_blind:
        nowhere = blind(table)
    if bias is not None:
        table = bias if table is None else bias.masked_fill(~table, float("-inf"))
    elif mask.added is not None and mask.added.dtype == query.dtype:
        table = mask.added
    # the other way knows no causal mask, no dropout and no query that may look nowhere
    plain = not causal and dropout == 0.0 and nowhere is None and (table is None or mask.none_blind)
    if plain and few_queries(query, key):
        return look_up_few(query, key, value, table, scale=scale)
    grouped = True if query.shape[1] != key.shape[1] else False  # noqa: SIM210 (a branch, as above)
    risky = query.is_cuda and table is not None and torch.is_grad_enabled()
    with sdpa_kernel(SOUND) if risky else nullcontext():
        found = F.scaled_dot_product_attention(
            query, key, value, attn_mask=table, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    return found if nowhere is None else found.masked_fill(nowhere, 0.0)


FEW, FEW_KEYS = 16, 32  # of a row


def few_queries(query: Queries, key: Keys) -> bool:
    """Whether `look_up_few` is the faster way: for beams, and for single queries of several rows, on a CPU.

    Without gradients only, and where keys and values of all heads are one stack of matrices, as they stand in a cache.
    """
    return (
        (1 if len(query) > 4 else 2) <= query.shape[-2] <= FEW
        and not query.is_cuda
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and query.shape[1] == key.shape[1]
        and key.stride(0) == key.shape[1] * key.stride(1)
    )


def look_up_few(
    query: Queries, key: Keys, value: Values, table: Shaped[Tensor, "..."] | None, *, scale: float | None
) -> Float[Tensor, "batch head query d_value"]:
    """The formula again, every head a small matrix: PyTorch's kernel on the CPU spends more on setting out for each."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # the keys on the left: with few rows there, MKL takes a third longer
    found = torch.bmm(key.flatten(0, 1), query.flatten(0, 1).transpose(1, 2)).unflatten(0, query.shape[:2])
    if table is not None and table.dtype is not torch.bool:
        scores = torch.add(table, found.transpose(2, 3), alpha=scale)
    else:
        scores = found.transpose(2, 3).mul(scale)
        scores = scores if table is None else scores.masked_fill_(~table, float("-inf"))
    return torch.bmm(scores.softmax(dim=-1).flatten(0, 1), value.flatten(0, 1)).unflatten(0, query.shape[:2])


class Attention(Part):
    """What self-attention and cross-attention share: the look-up, its taps, and the map that mixes the heads."""

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

    def find(
        self,
        query: Float[Tensor, "rows head seq d_head"],
        key: Keys,
        value: Values,
        mask: Mask,
        bias: Bias | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "rows seq d_model"]:
        """Looks the queries up and mixes what the heads found. Packed queries are spread out beside their keys."""
        if bias is None and self._in_one_go(query, key, value, mask, packing):
            if self.reads("scores", "pattern"):
                self._show(query if packing is None else packing.spread_heads(query), key, mask, bias)
            scale = self.d_head**-0.5 if self.scale is None else self.scale
            added = None if mask.may_look is None else mask.written_out(query.dtype).added
            heads = cpu.look_up(query, key, value, added, scale, packing)
            if packing is not None and (self.reads("heads") or self.edits("heads")):
                heads = packing.spread_heads(heads)  # whoever looks finds them in rows, whichever kernel it was
            else:
                packing = None  # they stay as they are
        else:
            heads = self._found(query if packing is None else packing.spread_heads(query), key, value, mask, bias)
        side_by_side = self.tap("heads", heads).transpose(1, 2).flatten(2)
        if packing is not None:
            side_by_side = packing.gather(side_by_side)[None]
        return self.tap("output", self.output(side_by_side))

    def _found(self, query: Queries, key: Keys, value: Values, mask: Mask, bias: Bias | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if self.edits("scores", "pattern"):
            return mix(F.dropout(self._show(query, key, mask, bias), dropout), value)
        if self.reads("scores", "pattern"):
            self._show(query, key, mask, bias)
        return look_up_fused(query, key, value, mask, bias=bias, scale=self.scale, dropout=dropout)

    def _in_one_go(self, query: Tensor, key: Keys, value: Values, mask: Mask, packing: Packing | None) -> bool:
        """Whether our own kernel on the CPU does it: for few queries or few keys, whose scores nobody edits."""
        return (
            not mask.causal
            and (query.shape[2] <= FEW or packing is not None or key.shape[2] <= FEW_KEYS)
            and cpu.looks_up(query, key, value, packed=packing is not None)
            and not (self.training and self.dropout)
            and not self.edits("scores", "pattern")
        )

    def _show(self, query: Queries, key: Keys, mask: Mask, bias: Bias | None) -> Float[Tensor, "batch head query key"]:
        scores = self.tap("scores", scores_of(query, key, bias=bias, scale=self.scale))
        return self.tap("pattern", pattern_of(scores, mask))


def split_heads(x: Float[Tensor, "batch seq width"], d_head: int) -> Float[Tensor, "batch head seq d_head"]:
    return x.unflatten(-1, (-1, d_head)).transpose(1, 2)


class SelfAttention(Attention):
    """Every position asks the positions of its own sequence. With fewer kv heads than heads, groups share keys."""

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
        packing = None
        if store is not None:
            if x.is_cuda and bias is None and store.lengths is not None and gpu_step.finds(query, store.keys, mask):
                return self.output(gpu_step.store_and_look_up(query, key, value, store, mask, self.scale))
            key, value = store.append(key, value)
            packing = store.packing
        return self.find(query, key, value, mask, bias, packing)


class CrossAttention(Attention):
    """Every target position asks the encoder's output, the memory."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_memory: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, n_heads, d_head, bias=bias, scale=scale, dropout=dropout)
        self.query = Linear(d_model, n_heads * self.d_head, bias=bias)
        self.key_value = Linear(d_memory or d_model, 2 * n_heads * self.d_head, bias=bias)

    def remember(self, memory: Float[Tensor, "sentence source d_memory"]) -> KeysValues:
        """The memory's keys and values, which stay the same for every target token."""
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
        if x.is_cuda and gpu_step.finds(query, remembered[0], mask):
            return self.output(gpu_step.look_up(query, *remembered, mask, self.scale))
        key, value = (self.tap(name, kept) for name, kept in zip(("key", "value"), remembered, strict=True))
        return self.find(query, key, value, mask, packing=packing)
