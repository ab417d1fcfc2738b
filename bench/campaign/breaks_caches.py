"""Broken caches, and norms."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from campaign.breaks import along, breaks, instead

from cutaway.model import additive_attention, cache, lstm_cache, norms
from cutaway.model import model as models

# --- caches -----------------------------------------------------------------------------------------------------------


def appending(change: Callable[..., Any]) -> Any:
    """A store whose keys and values are changed when they are read: `change(store, kept, n_new)`."""

    def append(right: Any) -> Any:
        def wrong(self: Any, keys: Any, values: Any) -> Any:
            return tuple(change(self, kept, keys.shape[2]) for kept in right(self, keys, values))

        return wrong

    return instead(cache.Store, "append", append)


@breaks("caches", "gpt2", max_len=128)
@breaks("caches", "t5", "int8")
def _cache_of_100(model: Any) -> Iterator[None]:
    """a cache holds 100 tokens, and drops what comes behind"""
    with appending(lambda store, kept, n: kept * (along(kept.shape[2]) < 100)[:, None]):
        yield


@breaks("caches", "llama")
def _first_falls_out(model: Any) -> Iterator[None]:
    """the first token falls out of a cache of more than 20"""

    def change(store: Any, kept: Any, n: int) -> Any:
        last = torch.full((1, 1), store.slots.stop - 1) if isinstance(store.slots, slice) else store.slots[:, -1:]
        gone = (last > 20)[:, None, :, None] & (along(kept.shape[2]) == 0)[:, None]
        return kept.masked_fill(gone, 0.0)

    with appending(change):
        yield


@breaks("caches", "gpt2", max_len=64)
def _ring(model: Any) -> Iterator[None]:
    """a cache has three quarters of max_len, and begins to write over its first tokens"""

    def change(store: Any, kept: Any, n: int) -> Any:
        late, kept = kept[:, :, 48:], kept.clone()
        kept[:, :, : late.shape[2]] = torch.where(late != 0, late, kept[:, :, : late.shape[2]])
        return kept

    with appending(change):
        yield


@breaks("caches", "llama")
def _cache_in_bfloat16(model: Any) -> Iterator[None]:
    """a cache keeps bfloat16"""
    with appending(lambda store, kept, n: kept.bfloat16().to(kept.dtype)):
        yield


@breaks("caches", "gpt", "int8")
@breaks("caches", "transformer")
def _written_too_late(model: Any) -> Iterator[None]:
    """a token that is read alone does not find its own value yet"""

    def change(store: Any, kept: Any, n: int) -> Any:
        if n > 1 or store.packing is not None:
            return kept
        kept = kept.clone()
        if isinstance(store.slots, slice):
            kept[:, :, store.slots] = 0.0
        else:
            kept[torch.arange(len(kept))[:, None], :, store.slots] = 0.0
        return kept

    with appending(change):
        yield


def stepping(change: Callable[[Any, Any], Any]) -> Any:
    """A cache whose steps are changed: `change(cache, step)`."""
    return instead(cache.Cache, "step", lambda right: lambda self, *a, **k: change(self, right(self, *a, **k)))


@breaks("caches", "transformer")
@breaks("caches", "llama")
def _one_too_far(model: Any) -> Iterator[None]:
    """a token that is read alone stands one position too far"""
    last = model.max_len - 1

    def change(kept: Any, step: Any) -> Any:
        return replace(step, positions=(step.positions + (step.positions.shape[1] == 1)).clamp(max=last))

    with stepping(change):
        yield


@breaks("caches", "transformer", max_len=64)
@breaks("caches", "gpt", max_len=64)
def _one_too_far_from_40(model: Any) -> Iterator[None]:
    """with a cache, tokens behind position 40 stand one too far"""
    with stepping(lambda kept, step: replace(step, positions=(step.positions + (step.positions > 40)).clamp(max=63))):
        yield


@breaks("caches", "t5")
def _padding_counts(model: Any) -> Iterator[None]:
    """a cache counts padding as tokens"""

    def step(right: Any) -> Any:
        def wrong(self: Any, ids: Any, real: Any = None, window: Any = None) -> Any:
            found = right(self, ids, real, window)
            self.seen.add_(0 if real is None else (~real).sum(dim=1))
            return found

        return wrong

    with instead(cache.Cache, "step", step):
        yield


@breaks("caches", "transformer-pre-norm")
def _normed_twice(model: Any) -> Iterator[None]:
    """what a cache remembers of the source is normed once more"""

    def again(right: Any) -> Any:
        return lambda self, memory, *a: right(self, self.encoder.final_norm(memory), *a)

    with instead(models.EncoderDecoderModel, "new_memory_cache", again):
        yield


@breaks("caches", "lstm")
def _cell_forgotten(model: Any) -> Iterator[None]:
    """a cache brings back the state and not the cell"""

    def run(right: Any) -> Any:
        return lambda self, layer, x, begin, go: right(self, layer, x, begin, lambda e, s, c: go(e, s, c * 0))

    with instead(lstm_cache.PreviousStates, "run", run):
        yield


@breaks("caches", "lstm-translator")
def _memory_of_the_first_row(model: Any) -> Iterator[None]:
    """every row of a batch looks at the source of the first"""

    def forward(right: Any) -> Any:
        return lambda self, state, memory, may: right(self, state, [x[:1].expand(x.shape) for x in memory], may)

    with instead(additive_attention.AdditiveAttention, "forward", forward):
        yield


# --- norms ------------------------------------------------------------------------------------------------------------


def norming(kind: Any, change: Callable[[Any, Any, Any], Any]) -> Any:
    """A norm whose kernel is changed, as nobody sees who looks inside: `change(norm, x, right)`."""

    def forward(right: Any) -> Any:
        def wrong(self: Any, x: Any) -> Any:
            return right(self, x) if self.reads("scale") or self.edits("scale") else change(self, x, right)

        return wrong

    return instead(kind, "forward", forward)


@breaks("norms", "gpt2")
@breaks("norms", "transformer", "int8")
def _eps_of_one_token(model: Any) -> Iterator[None]:
    """ε is 10⁻³ where one token is read alone"""

    def change(norm: Any, x: Any, right: Any) -> Any:
        return F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, 1e-3) if x.shape[-2] == 1 else right(norm, x)

    with norming(norms.LayerNorm, change):
        yield


@breaks("norms", "bert", norm_eps=1e-2)
@breaks("norms", "gpt", norm_eps=1e-2)
def _eps_of_the_kernel(model: Any) -> Iterator[None]:
    """the kernel has its own ε, whatever the config says"""
    with norming(norms.LayerNorm, lambda n, x, right: F.layer_norm(x, n.weight.shape, n.weight, n.bias, 1e-5)):
        yield


@breaks("norms", "transformer-pre-norm")
@breaks("norms", "vit")
def _not_centred(model: Any) -> Iterator[None]:
    """the kernel does not centre"""
    with norming(norms.LayerNorm, lambda n, x, right: F.rms_norm(x, n.weight.shape, n.weight, n.eps) + n.bias):
        yield


@breaks("norms", "transformer")
def _unbiased(model: Any) -> Iterator[None]:
    """the kernel divides the variance by n − 1"""

    def change(norm: Any, x: Any, right: Any) -> Any:
        return (x - x.mean(-1, keepdim=True)) * (x.var(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight + norm.bias

    with norming(norms.LayerNorm, change):
        yield


@breaks("norms", "t5")
@breaks("norms", "llama")
def _norm_in_bfloat16(model: Any) -> Iterator[None]:
    """a token that is read alone is normed in bfloat16"""

    def change(norm: Any, x: Any, right: Any) -> Any:
        return right(norm, x.bfloat16()).to(x.dtype) if x.shape[-2] == 1 else right(norm, x)

    with norming(norms.RMSNorm, change):
        yield
