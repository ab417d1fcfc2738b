"""A model: a body that computes hidden states, and the head that reads them.

Inputs have the same names in every family: `ids` (batch seq), `real` (False where a token is padding), `documents`
(the document of a packed row that each token belongs to), `cache` (keys and values of earlier tokens).
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model.cache import Cache, Step, zeros
from cutaway.model.config import Config
from cutaway.model.decoder import Decoder
from cutaway.model.embeddings import check_len, check_like
from cutaway.model.masks import Mask, causal_mask, padding_mask
from cutaway.model.positions import positions_of
from cutaway.model.tap import Part


class Model(Part):
    """`model(ids)` is `model.head(model.hidden(ids))`; an objective may also call the two one after the other."""

    config: Config
    head: Part

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def hidden(self, *inputs: Tensor, **more: Any) -> Float[Tensor, "batch seq d_model"]:
        """The hidden states. Each family defines its own inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no body")

    def forward(self, *inputs: Tensor, **more: Any) -> Tensor:
        return self.head(self.hidden(*inputs, **more), more.get("real"))

    def initialise(self) -> None:
        """Draws the first weights as the family's paper does."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its weights begin")

    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


class DecoderModel(Model):
    """What families share that have a decoder with a cache."""

    decoder: Decoder
    max_len: int | None = None
    window: int | None = None

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """The number of layers, of heads with keys and values, and the width of a head."""
        attention = self.decoder[0].attention
        return len(self.decoder), attention.n_kv_heads, attention.d_head

    def step(
        self,
        ids: Int[Tensor, "batch seq"],
        real: Bool[Tensor, "batch seq"] | None,
        documents: Int[Tensor, "batch seq"] | None,
        cache: Cache | None,
    ) -> Step:
        """The positions and the mask of these tokens, which follow those of the cache if there is one."""
        check_like("documents", documents, ids, "int")
        if cache is None:
            check_len(ids, self.max_len)
            positions = positions_of(ids, real, documents)
            return Step(positions, positions, causal_mask(positions, real, documents, self.window))
        if documents is not None:
            raise InputError("a cache continues one document per row: leave `documents` out")
        self._check_cache(cache, ids.shape[1])
        return cache.step(ids, real, self.window)

    def _check_cache(self, cache: Cache, n: int) -> None:
        """Refuses a cache of another model, and more tokens than this one can read, before anything is written."""
        keys = cache.keys[0]
        theirs = (len(cache.keys), keys.shape[1], keys.shape[3])
        if self.cache_shape != theirs:
            raise InputError(
                f"a cache for (layers, kv heads, d_head) = {theirs} in a model of {self.cache_shape}: use new_cache"
            )
        if self.max_len is not None and keys.device.type == "cpu" and not torch.compiler.is_compiling():
            needed = int(cache.seen.max()) + cache.growth(n)
            if needed > self.max_len:
                raise InputError(f"{needed} tokens, those of the cache included, are more than max_len={self.max_len}")

    def new_cache(
        self, batch: int, max_len: int, *, slots: int | None = None, dtype: torch.dtype | None = None
    ) -> Cache:
        """An empty cache for this model, on its device. A beam search needs more `slots` than its texts have tokens."""
        if self.max_len is not None and max_len > self.max_len:
            raise InputError(f"a cache of {max_len} tokens is longer than this model's max_len={self.max_len}")
        n_layers, n_heads, d_head = self.cache_shape
        return Cache.empty(
            n_layers,
            batch,
            max_len if slots is None else slots,
            n_heads,
            d_head,
            dtype=dtype or self.dtype,
            device=self.device,
        )


class EncoderDecoderModel(DecoderModel):
    """A model that reads a source and writes a target."""

    def new_memory_cache(
        self,
        memory: Float[Tensor, "sentence source d_model"],
        memory_real: Bool[Tensor, "sentence source"] | None,
        max_len: int,
    ) -> Cache:
        """A cache with a row for each sentence; keys and values of cross-attention are computed here, once."""
        check_like("memory_real", memory_real, memory, "bool")
        cross, mask = self.decoder.remember(memory), padding_mask(memory_real)
        return replace(self.new_cache(len(memory), max_len, dtype=memory.dtype), cross=cross, cross_mask=mask)

    def with_memory(self, cache: Cache, source: int) -> Cache:
        """A cache with room for the keys and values of sources of at most `source` tokens: see `remember`."""
        attention = self.decoder[0].cross
        assert attention is not None
        device, kind = cache.lengths.device, cache.keys[0].dtype
        shape = (cache.batch, attention.n_heads, source, attention.d_head)
        seen = torch.ones(cache.batch, 1, 1, source, dtype=torch.bool, device=device)
        cross = [(zeros(shape, kind, device), zeros(shape, kind, device)) for _ in self.decoder]
        return replace(cache, cross=cross, cross_mask=Mask(seen, none_blind=True))

    def remember(
        self,
        cache: Cache,
        memory: Float[Tensor, "sentence source d_model"],
        memory_real: Bool[Tensor, "sentence source"] | None = None,
    ) -> None:
        """Writes the keys and values of the memory into a cache from `with_memory`."""
        n = memory.shape[1]
        seen = cache.cross_mask.may_look if cache.cross_mask is not None else None
        if seen is None:
            raise InputError("this cache has no room for a memory: make it with `with_memory`")
        seen.fill_(False)
        seen[:, 0, 0, :n] = True if memory_real is None else memory_real
        for stored, new in zip(cache.cross, self.decoder.remember(memory), strict=True):
            for room, values in zip(stored, new, strict=True):
                room[:, :, :n] = values

    def across(
        self,
        batch: int,
        memory: Float[Tensor, "sentence source d_model"] | None,
        memory_real: Bool[Tensor, "sentence source"] | None,
        cache: Cache | None,
    ) -> dict[str, Any]:
        """The keys, values and mask of cross-attention: those of the cache, or those of this memory."""
        if cache is not None and cache.cross_mask is not None:
            if memory is not None or memory_real is not None:
                raise InputError("this cache was made from a memory: leave `memory` and `memory_real` out")
            return {"memory": cache.cross, "memory_mask": cache.cross_mask}
        if memory is None:
            raise InputError("no memory to attend to: give `memory`, or a cache from new_memory_cache")
        check_like("memory_real", memory_real, memory, "bool")
        if len(memory) != batch:
            raise InputError(f"{batch} targets for {len(memory)} sources: give one for each, or beams a cache")
        return {"memory": self.decoder.remember(memory), "memory_mask": padding_mask(memory_real)}

    def encode(
        self, source: Int[Tensor, "batch source"], real: Bool[Tensor, "batch source"] | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """The memory: the encoder's output."""
        raise NotImplementedError(f"{type(self).__name__} has no encoder")

    def decode(
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        memory: Float[Tensor, "sentence source d_model"] | None = None,
        memory_real: Bool[Tensor, "sentence source"] | None = None,
        real: Bool[Tensor, "batch seq"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """The hidden states of the target, given a memory or a cache that holds one."""
        raise NotImplementedError(f"{type(self).__name__} has no decoder")

    def hidden(  # type: ignore[override]
        self,
        source: Int[Tensor, "batch source"],
        ids: Int[Tensor, "batch seq"],
        *,
        source_real: Bool[Tensor, "batch source"] | None = None,
        real: Bool[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        if len(source) != len(ids):
            raise InputError(f"{len(ids)} targets for {len(source)} sources: give one for each")
        memory = self.encode(source, source_real)
        return self.decode(ids, memory=memory, memory_real=source_real, real=real)
