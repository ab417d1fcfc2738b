"""The kernels of `gpu`, in Triton.

A kernel may start while the one before it is still running, and fetch its weights meanwhile; `gdc_wait` marks where it
needs the results of the other (programmatic dependent launch; EARLY says whether the GPU has it). What is read before
that line must not change during a step. It may have been written by earlier steps, because every step begins with
kernels of PyTorch's, which wait for everything before them.
"""
# mypy: ignore-errors
# (what Triton compiles is written in Python's grammar, but is not Python)

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# measured on an H200: inputs of a tile, warps and stages, by whether there are many inputs; slots and warps, by rows
MANY = {False: (128, 4, 4), True: (256, 4, 3)}
ALONE = {False: (256, 8), True: (32, 1)}


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    elif ACTIVATION == "tanh":
        x = 2 * tl.sigmoid(2 * x) - 1
    return x


@triton.jit
def _project(x, weight, bias, norm_weight, norm_bias, onto, found, n_rows, n_out, x_row, onto_row, eps,
             NORM: tl.constexpr, BIAS: tl.constexpr, NORM_BIAS: tl.constexpr, ONTO: tl.constexpr,
             ACTIVATION: tl.constexpr, EARLY: tl.constexpr,
             ROWS: tl.constexpr, N_IN: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr):  # fmt: skip
    """Some outputs of activation(norm(x) weightᵀ + bias) + onto, for every row: the weights are read once."""
    if EARLY:
        gdc_launch_dependents()
    out, at = tl.program_id(0) * OUT + tl.arange(0, OUT), tl.arange(0, IN)
    wanted, inside = out < n_out, at < N_IN
    w = tl.load(
        weight + out.to(tl.int64)[:, None] * N_IN + at[None, :], mask=wanted[:, None] & inside[None, :], other=0.0
    )
    if BIAS:
        b = tl.load(bias + out, mask=wanted, other=0.0).to(tl.float32)
    if NORM:
        stretch = tl.load(norm_weight + at, mask=inside, other=0.0).to(tl.float32)
        if NORM_BIAS:
            shift = tl.load(norm_bias + at, mask=inside, other=0.0).to(tl.float32)
    if EARLY:
        gdc_wait()
    for row in tl.static_range(ROWS):
        there = out * 0 + row < n_rows
        v = tl.load(x + row * x_row + at, mask=inside & (at * 0 + row < n_rows), other=0.0).to(tl.float32)
        if NORM:
            mean = 0.0
            if NORM == 1:  # from the first on: large numbers that differ little would drown their variance
                v = tl.where(inside, v - tl.load(x + row * x_row).to(tl.float32), 0.0)
                mean = tl.sum(v, 0) / N_IN
            v = (v - mean) * tl.rsqrt(tl.sum(v * v, 0) / N_IN - mean * mean + eps) * stretch
            if NORM_BIAS:
                v += shift
            v = v.to(w.dtype).to(tl.float32)
        y = tl.sum(w.to(tl.float32) * v[None, :], 1)
        if BIAS:
            y += b
        y = _activated(y, ACTIVATION)
        if ONTO:
            y += tl.load(onto + row * onto_row + out, mask=wanted & there, other=0.0).to(tl.float32)
        tl.store(found + row * n_out + out, y.to(found.dtype.element_ty), mask=wanted & there)


@triton.jit
def _fetch(pointers):
    """Prefetches into the L2 cache, without waiting."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointers.to(tl.int64)], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _project_many(x, weight, bias, onto, found, n_rows, n_out, x_row, onto_row,
                  BIAS: tl.constexpr, ONTO: tl.constexpr, ACTIVATION: tl.constexpr, EARLY: tl.constexpr,
                  N_IN: tl.constexpr, LINES: tl.constexpr,
                  ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr):  # fmt: skip
    """A tile of activation(x weightᵀ + bias) + onto, for up to 64 rows."""
    row, out = tl.arange(0, ROWS), tl.program_id(0) * OUT + tl.arange(0, OUT)
    there, wanted = (row < n_rows)[:, None], (out < n_out)[:, None]
    its = weight + tl.minimum(out, n_out - 1).to(tl.int64)[:, None] * N_IN
    if EARLY:
        gdc_launch_dependents()
        _fetch(its + tl.minimum(tl.arange(0, LINES) * 64, N_IN - 1)[None, :])
        gdc_wait()
    total = tl.zeros([ROWS, OUT], tl.float32)
    for first in range(0, N_IN, IN):
        at = first + tl.arange(0, IN)[None, :]
        w = tl.load(its + at, mask=wanted & (at < N_IN), other=0.0)
        part = tl.load(x + row[:, None] * x_row + at, mask=there & (at < N_IN), other=0.0)
        total = tl.dot(part, tl.trans(w), total)
    across = out[None, :]
    kept = there & (across < n_out)
    if BIAS:
        total += tl.load(bias + across, mask=across < n_out, other=0.0).to(tl.float32)
    total = _activated(total, ACTIVATION)
    if ONTO:
        total += tl.load(onto + row[:, None] * onto_row + across, mask=kept, other=0.0).to(tl.float32)
    tl.store(found + row[:, None] * n_out + across, total.to(found.dtype.element_ty), mask=kept)


@triton.jit
def _norm(x, weight, bias, found, x_row, eps, NORM: tl.constexpr, BIAS: tl.constexpr, EARLY: tl.constexpr,
          N: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """The norm of one row."""
    if EARLY:
        gdc_launch_dependents()
    at = tl.arange(0, WIDTH)
    inside = at < N
    stretch = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        shift = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    if EARLY:
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    v = tl.load(x + row * x_row + at, mask=inside, other=0.0).to(tl.float32)
    if NORM == 1:
        v = tl.where(inside, v - tl.sum(v, 0) / N, 0.0)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / N + eps) * stretch
    if BIAS:
        v += shift
    tl.store(found + row * N + at, v.to(found.dtype.element_ty), mask=inside)


@triton.jit
def _attend_alone(query, key, value, keys, values, table, lengths, found,
                  q_batch, q_head, k_batch, k_head, v_batch, v_head, s_batch, s_head, t_batch, f_batch, n_slots, scale,
                  STORES: tl.constexpr, MASKED: tl.constexpr, EARLY: tl.constexpr,
                  D: tl.constexpr, SLOTS: tl.constexpr):  # fmt: skip
    """`_attend` for a single query and heads with keys of their own: there is no matrix product."""
    if EARLY:
        gdc_launch_dependents()
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, D)
    keys += batch * s_batch + head * s_head
    values += batch * s_batch + head * s_head
    table += batch * t_batch
    end = n_slots
    if STORES:
        end = tl.minimum(tl.load(lengths + batch).to(tl.int32), n_slots) - 1
    slot = tl.arange(0, SLOTS)
    inside = slot < end
    k = tl.load(keys + slot[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
    v = tl.load(values + slot[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
    if MASKED:
        inside = inside & (tl.load(table + slot, mask=inside, other=0) != 0)
    if EARLY:
        gdc_wait()
    q = tl.load(query + batch * q_batch + head * q_head + d).to(tl.float32) * scale
    highest, total = tl.full([], float("-inf"), tl.float32), tl.full([], 0.0, tl.float32)
    mixed = tl.zeros([D], tl.float32)
    if STORES:
        new_k = tl.load(key + batch * k_batch + head * k_head + d)
        new_v = tl.load(value + batch * v_batch + head * v_head + d)
        tl.store(keys + end * D + d, new_k.to(keys.dtype.element_ty))
        tl.store(values + end * D + d, new_v.to(values.dtype.element_ty))
        highest = tl.sum(q * new_k.to(tl.float32), 0)
        total += 1.0
        mixed = new_v.to(tl.float32)
    for _ in range(0, end, SLOTS):
        scores = tl.where(inside, tl.sum(k.to(tl.float32) * q[None, :], 1), float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight, fade = tl.exp(scores - base), tl.exp(highest - base)
        total = total * fade + tl.sum(weight, 0)
        mixed = mixed * fade + tl.sum(weight[:, None] * v.to(tl.float32), 0)
        highest = higher
        slot += SLOTS
        inside = slot < end
        k = tl.load(keys + slot[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(values + slot[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        if MASKED:
            inside = inside & (tl.load(table + slot, mask=inside, other=0) != 0)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)
    tl.store(found + batch * f_batch + head * D + d, mixed.to(found.dtype.element_ty))


@triton.jit
def _attend(query, key, value, keys, values, table, lengths, found,
            q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
            s_batch, s_head, t_batch, t_row, f_batch, f_row, n_query, n_slots, scale,
            STORES: tl.constexpr, MASKED: tl.constexpr, EARLY: tl.constexpr, GROUP: tl.constexpr,
            Q: tl.constexpr, D: tl.constexpr, SLOTS: tl.constexpr):  # fmt: skip
    """Attention for the heads of one row that share keys, over stored keys and new ones, which are stored here."""
    if EARLY:
        gdc_launch_dependents()
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    at, d = tl.arange(0, Q), tl.arange(0, D)[None, :]
    which, member = at % n_query, at // n_query
    asked, new = (at < n_query * GROUP)[:, None], (at < n_query)[:, None]
    keys += batch * s_batch + head * s_head
    values += batch * s_batch + head * s_head
    table += batch * t_batch
    end = n_slots
    if STORES:
        end = tl.minimum(tl.load(lengths + batch).to(tl.int32), n_slots) - n_query
    if EARLY:
        gdc_wait()
    its = query + batch * q_batch + (head * GROUP + member)[:, None] * q_head + which[:, None] * q_row
    q = tl.load(its + d, mask=asked, other=0.0)
    highest = tl.full([Q], float("-inf"), tl.float32)
    total = tl.zeros([Q], tl.float32)
    mixed = tl.zeros([Q, D], tl.float32)
    if STORES:
        new_k = tl.load(key + batch * k_batch + head * k_head + at[:, None] * k_row + d, mask=new, other=0.0)
        new_v = tl.load(value + batch * v_batch + head * v_head + at[:, None] * v_row + d, mask=new, other=0.0)
        tl.store(keys + (end + at)[:, None] * D + d, new_k.to(keys.dtype.element_ty), mask=new)
        tl.store(values + (end + at)[:, None] * D + d, new_v.to(values.dtype.element_ty), mask=new)
        sees = asked & (at < n_query)[None, :]
        if MASKED:
            sees = sees & (tl.load(table + which[:, None] * t_row + (end + at)[None, :], mask=sees, other=0) != 0)
        among = tl.where(sees, tl.dot(q, tl.trans(new_k), input_precision="ieee") * scale, float("-inf"))
        highest = tl.max(among, 1)
        first_weight = tl.exp(among - tl.where(highest == float("-inf"), 0.0, highest)[:, None])
        total = tl.sum(first_weight, 1)
        mixed = tl.dot(first_weight.to(new_v.dtype), new_v, input_precision="ieee")
    for first in range(0, end, SLOTS):
        slot = first + tl.arange(0, SLOTS)
        inside = slot < end
        k = tl.load(keys + slot[:, None] * D + d, mask=inside[:, None], other=0.0)
        v = tl.load(values + slot[:, None] * D + d, mask=inside[:, None], other=0.0)
        may_look = asked & inside[None, :]
        if MASKED:
            may_look = may_look & (tl.load(table + which[:, None] * t_row + slot[None, :], mask=may_look, other=0) != 0)
        scores = tl.where(may_look, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(scores - base[:, None])
        fade = tl.exp(highest - base)
        total = total * fade + tl.sum(weight, 1)
        mixed = tl.dot(weight.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
        highest = higher
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    place = found + batch * f_batch + which[:, None] * f_row + (head * GROUP + member)[:, None] * D + d
    tl.store(place, mixed.to(found.dtype.element_ty), mask=asked)


def _early(x: Tensor) -> dict[str, bool]:
    """The options of a launch that may start early."""
    return {"launch_pdl": True} if x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0) else {}


def project(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: tuple[int, Tensor, Tensor | None, float] | None,
    activation: str, onto: Tensor | None,
) -> Tensor:  # fmt: skip
    """`norm` is its kind (1 layer, 2 root mean square), weight, bias and ε."""
    n_rows, (n_out, n_in) = len(x), weight.shape
    found = x.new_empty(n_rows, n_out)
    early = _early(x)
    b, o, onto_row = x if bias is None else bias, x if onto is None else onto, 0 if onto is None else onto.stride(0)
    if n_rows > 8:
        x = x if norm is None else normed(x, *norm)
        inputs, warps, stages = MANY[n_in > 2048]
        _project_many[triton.cdiv(n_out, 16),](
            x, weight, b, o, found, n_rows, n_out, x.stride(0), onto_row,
            bias is not None, onto is not None, activation, bool(early), n_in, triton.next_power_of_2(-(-n_in // 64)),
            max(16, triton.next_power_of_2(n_rows)), inputs, 16, num_warps=warps, num_stages=stages, **early,
        )  # fmt: skip
        return found
    kind, norm_weight, norm_bias, eps = norm or (0, x, None, 0.0)
    outputs, inputs = 8 if n_out > 8192 else 4, triton.next_power_of_2(n_in)
    _project[triton.cdiv(n_out, outputs),](
        x, weight, b, norm_weight, x if norm_bias is None else norm_bias, o, found,
        n_rows, n_out, x.stride(0), onto_row, eps,
        kind, bias is not None, norm_bias is not None, onto is not None, activation, bool(early),
        triton.next_power_of_2(n_rows), n_in, inputs, outputs, num_warps=4 if inputs <= 4096 else 8, **early,
    )  # fmt: skip
    return found


def normed(x: Tensor, kind: int, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    found = torch.empty_like(x, memory_format=torch.contiguous_format)
    width, early = triton.next_power_of_2(x.shape[1]), _early(x)
    _norm[len(x),](
        x, weight, x if bias is None else bias, found, x.stride(0), eps, kind, bias is not None, bool(early),
        x.shape[1], width, num_warps=max(1, min(8, width // 256)), **early,
    )  # fmt: skip
    return found


def attend(
    query: Tensor, new: tuple[Tensor, Tensor] | None, keys: Tensor, values: Tensor, table: Tensor | None,
    lengths: Tensor | None, scale: float,
) -> Tensor:  # fmt: skip
    """The heads side by side: (batch, query, head · d_head). New keys and values are stored just before `lengths`."""
    batch, n_heads, n_query, d_head = query.shape
    n_kv, n_slots = keys.shape[1:3]
    found = query.new_empty(batch, n_query, n_heads * d_head)
    key, value = new or (query, query)
    group = n_heads // n_kv
    t_batch = t_row = 0
    if table is not None:
        t_batch = table.stride(0) if len(table) > 1 else 0
        t_row = table.stride(2) if table.shape[2] > 1 else 0
    many = batch * n_kv >= 256
    early, tile = _early(query), max(16, triton.next_power_of_2(n_slots))
    seen = query if table is None else table.view(torch.uint8)
    taken = query if lengths is None else lengths
    if n_query * group == 1:
        slots, warps = ALONE[many]
        slots = min(slots, tile)
        _attend_alone[batch, n_kv](
            query, key, value, keys, values, seen, taken, found,
            *query.stride()[:2], *key.stride()[:2], *value.stride()[:2], *keys.stride()[:2], t_batch, found.stride(0),
            n_slots, scale, new is not None, table is not None, bool(early),
            d_head, slots, num_warps=warps, **early,
        )  # fmt: skip
        return found
    _attend[batch, n_kv](
        query, key, value, keys, values, seen, taken, found,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *keys.stride()[:2], t_batch, t_row,
        *found.stride()[:2], n_query, n_slots, scale, new is not None, table is not None, bool(early), group,
        max(16, triton.next_power_of_2(n_query * group)), d_head, min(64 if many else 128, tile),
        num_warps=4, num_stages=2, **early,
    )  # fmt: skip
    return found
