"""A whole block on a CPU in one call: the bits of `Block.forward`, without the calls of its parts.

With few tokens, a block's dozen kernels take less time than it takes Python to call them. `block` in `cpu.cpp` calls
them itself, one after another, with the same numbers in the same order. It has what a translator's block has: matrices
in 8 bits, LayerNorm, ReLU, positions that are added to the embedding; other blocks go part by part.

It is used if `fits` is true and `plan_of` finds a plan: never during a watch or an edit, since there are no taps.
"""

import ctypes
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from cutaway.model.cache import KeysValues, Store
from cutaway.model.feed_forward import FeedForward
from cutaway.model.kernels import cpu
from cutaway.model.kernels.attend import FEW_KEYS, FEW_QUERIES
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.masks import Mask
from cutaway.model.norms import LayerNorm
from cutaway.model.tap import watching

if TYPE_CHECKING:
    from cutaway.model.attention import Attention
    from cutaway.model.blocks import Block

Stream = Float[Tensor, "rows seq d_model"]
_pointer, _long = ctypes.c_void_p, ctypes.c_long


class _Product(ctypes.Structure):
    _fields_ = [(name, _pointer) for name in ("panels", "scale", "above", "bias")] + [("n_in", _long), ("n_out", _long)]


class _Norm(ctypes.Structure):
    _fields_ = [("weight", _pointer), ("bias", _pointer), ("eps", ctypes.c_float)]


class _Attending(ctypes.Structure):
    _fields_ = [
        ("norm", _Norm), ("n_in", _Product), ("n_out", _Product),
        ("heads", _long), ("d_head", _long), ("scale", ctypes.c_float),
    ]  # fmt: skip


class _Block(ctypes.Structure):
    _fields_ = [("self", _Attending), ("cross", _Attending), ("norm", _Norm), ("up", _Product), ("down", _Product),
                ("pre", _long)]  # fmt: skip


class _Seen(ctypes.Structure):
    _fields_ = [
        ("keys", _pointer), ("values", _pointer), *[(name, _long) for name in ("row", "head", "slot", "slots")],
        ("table", _pointer), ("table_row", _long), ("table_line", _long),
    ]  # fmt: skip


class Plan:
    """A block as the kernel reads it."""

    def __init__(self, block: "Block", *, pre: bool) -> None:
        self.parts, self.settings = _parts(block), _settings(block, pre)
        self.linears = [part for part in self.parts if isinstance(part, Int8Linear)]
        self.panels = [linear._as_panels() for linear in self.linears]
        self.places = _places(self.parts)
        cross = _Attending()
        if block.cross is not None:
            cross = _attending(block.cross_norm, block.cross.query, block.cross)
        own = _attending(block.attention_norm, block.attention.query_key_value, block.attention)
        forward: Any = block.feed_forward
        self.block = _Block(
            own, cross, _norm(block.feed_forward_norm), _product(forward.up), _product(forward.down), pre
        )

    def holds(self, block: "Block", *, pre: bool) -> bool:
        """Whether the block still has these parts and weights, and nobody has a hook in it."""
        parts = _parts(block)
        return (
            len(parts) == len(self.parts)
            and all(one is other for one, other in zip(parts, self.parts, strict=True))
            and _settings(block, pre) == self.settings
            and all(one._panels is panels for one, panels in zip(self.linears, self.panels, strict=True))
            and _places(parts) == self.places
            and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        )


def _parts(block: "Block") -> list[Any]:
    attention, forward, cross = block.attention, block.feed_forward, block.cross
    parts: list[Any] = [attention, forward, attention.query_key_value, attention.output, block.attention_norm]
    parts += [getattr(forward, "up", None), forward.down, block.feed_forward_norm]
    return parts if cross is None else [*parts, cross, cross.query, cross.output, block.cross_norm]


def _settings(block: "Block", pre: bool) -> tuple[Any, ...]:
    norms: list[Any] = [block.attention_norm, block.feed_forward_norm, block.cross_norm]
    scales = (block.attention.scale, None if block.cross is None else block.cross.scale)
    return (pre, block.feed_forward.activation, *scales, *(getattr(norm, "eps", None) for norm in norms))


def _places(parts: list[Any]) -> list[int]:
    norms = [part for part in parts if type(part) is LayerNorm]
    return [place for norm in norms for place in (norm.weight.data_ptr(), norm.bias.data_ptr())]


_plans: "WeakKeyDictionary[Block, Plan]" = WeakKeyDictionary()  # not in the block, which is copied and saved


def plan_of(block: "Block", *, pre: bool) -> Plan | None:
    """The block's plan, made at its first use; None if it has a part that the kernel does not have."""
    plan = _plans.get(block)
    if plan is None or not plan.holds(block, pre=pre):
        if not _can_plan(block):
            return None
        plan = _plans[block] = Plan(block, pre=pre)
    return plan if plan.holds(block, pre=pre) else None


def _can_plan(block: "Block") -> bool:
    attention, forward = block.attention, block.feed_forward
    if type(attention.query_key_value) is not Int8Linear or not isinstance(forward, FeedForward):  # type: ignore[comparison-overlap]
        return False
    parts = _parts(block)
    n = 2 if block.cross is None else 3  # attention and feed-forward have a norm each
    linears = [part for part in parts if type(part) is Int8Linear and part.levels == 127]
    norms = [part for part in parts if type(part) is LayerNorm]
    return (
        forward.activation is F.relu
        and attention.n_kv_heads == attention.n_heads
        and all(one.d_head in cpu.WIDTHS for one in (attention, block.cross) if one is not None)
        and len(linears) == 2 * n
        and all(one.weight.shape[1] % cpu.QUAD == 0 for one in linears)
        and len(norms) == n
        and all(len(norm.weight) % cpu.LANES == 0 and cpu.fit(norm.weight, norm.bias) for norm in norms)
        and all(norm.weight.is_contiguous() and norm.bias.is_contiguous() for norm in norms)
    )


def fits(x: Stream, mask: Mask, memory_mask: Mask, store: Store | None, memory: KeysValues | None) -> bool:
    """Whether `take` can compute this pass of a block: as few tokens as our kernel for attention is used for."""
    stored = () if store is None else (store.keys, store.values)
    # first: of a symbolic length, a comparison would be a condition
    if not cpu.fit(x, *stored, *(memory or ())) or watching():
        return False
    each, packed = x.shape[1], store is not None and store.packing is not None
    if store is None:  # an encoder
        few = each <= FEW_KEYS and memory is None
    else:
        few = (each <= FEW_QUERIES or packed) and _alike(store.keys, store.values)
    if memory is not None:
        few = few and _alike(*memory) and (packed or len(memory[0]) == len(x))
    return few and not mask.causal and not memory_mask.causal


def _alike(keys: Tensor, values: Tensor) -> bool:
    return keys.stride() == values.stride() and keys.stride(3) == 1


def take(
    plan: Plan, x: Stream, mask: Mask, store: Store | None, memory: KeysValues | None, memory_mask: Mask
) -> Stream:
    """What `Block.forward` computes."""
    n_rows, each = x.shape[:2]
    x = x.clone(memory_format=torch.contiguous_format)
    own, slots, packing = _Seen(), None, None
    _look(own, mask, x.dtype)
    if store is not None:
        packing = store.packing
        alike = store.slots  # the same in every row, or each row's own
        rows = torch.arange(alike.start, alike.stop).repeat(n_rows) if isinstance(alike, slice) else alike
        slots = rows.to(torch.long).contiguous()
        _place(own, store.keys, store.values)
    seen = None
    if memory is not None:
        seen = _Seen()
        _look(seen, memory_mask, x.dtype)
        _place(seen, *memory)
    cpu.block(
        ctypes.byref(plan.block), x.data_ptr(), n_rows * each, each, ctypes.byref(own),
        None if slots is None else slots.data_ptr(), None if seen is None else ctypes.byref(seen),
        None if packing is None else packing.rows.data_ptr(), None if packing is None else packing.places.data_ptr(),
        torch.get_num_threads(),
    )  # fmt: skip
    return x


def _place(seen: _Seen, keys: Tensor, values: Tensor) -> None:
    seen.keys, seen.values = keys.data_ptr(), values.data_ptr()
    seen.row, seen.head, seen.slot = keys.stride()[:3]
    seen.slots = keys.shape[2]


def _look(seen: _Seen, mask: Mask, dtype: torch.dtype) -> None:
    if mask.may_look is None:
        return
    table = mask.written_out(dtype).added
    assert table is not None
    seen.keep = table  # alive until the call
    seen.table = table.data_ptr()
    seen.table_row, seen.table_line = table.stride(0) * (len(table) > 1), table.stride(2) * (table.shape[2] > 1)


def _product(linear: Any) -> _Product:
    panels = linear._as_panels()
    bias = None if panels.bias is None else panels.bias.data_ptr()
    n_out, n_in = linear.weight.shape
    return _Product(panels.weight.data_ptr(), panels.scale.data_ptr(), panels.above.data_ptr(), bias, n_in, n_out)


def _norm(norm: nn.Module) -> _Norm:
    assert isinstance(norm, LayerNorm)
    return _Norm(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps)


def _attending(norm: nn.Module, first: Any, part: "Attention") -> _Attending:
    scale = part.d_head**-0.5 if part.scale is None else part.scale
    return _Attending(_norm(norm), _product(first), _product(part.output), part.n_heads, part.d_head, scale)
