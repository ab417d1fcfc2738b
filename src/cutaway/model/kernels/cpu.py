"""Our own kernels for decoding on a CPU, in `cpu.cpp`. The machine's own compiler compiles them once, at first use.

PyTorch's products of 8-bit matrices are nearly as fast as a CPU can be, but not the operations around them: for a few
rows, rounding activations to bytes, arranging small matrices for attention and sorting a vocabulary take longer than
the products. `cpu.cpp` does each of these in one pass. Without a compiler, without AVX-512 and VNNI, or with the
setting CUTAWAY_KERNELS=0, PyTorch does everything; the results differ in the last bits at most.

The kernels run on the thread that calls them, except for products with many rows. Engines run side by side
(`cutaway.decoding.engine.threads`), and one sentence is too little work for two cores: one core alone is faster.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Int8, Int32
from torch import Tensor, nn
from torch.autograd import forward_ad

from cutaway.model.kernels.live_rows import Packing

FLAGS = ("-O3", "-march=x86-64-v4", "-mavx512vnni", "-ffp-contract=off", "-std=c++17", "-pthread", "-shared", "-fPIC")
LANES = 16  # floats in a register
PANEL, QUAD = 64, 4  # outputs and inputs whose weights are stored together
SHARE = 1 << 23  # multiplications that are worth a thread of their own
PATIENCE = 120  # seconds for the compiler
WIDTHS = (16, 32, 64, 128)  # of heads
PLAIN = (Tensor, nn.Parameter)
# no compiler, no disk space, a damaged library
UNAVAILABLE = (OSError, RuntimeError, subprocess.TimeoutExpired, AttributeError)

_address, _count = ctypes.c_void_p, ctypes.c_long
ARGUMENTS = {
    "linear": [_address, _count, *[_address] * 4, _count, _count, _address, _count],
    "attend": [
        _address, _count, _address, _address, *[_count] * 3, _address, _count, _count, _address, _address,
        *[_count] * 5, ctypes.c_float, _address,
    ],
    "append": [_address, _count, _address, *[_count] * 3, _address, _address, *[_count] * 4],
    "keep": [_address, *[_count] * 3, *[_address] * 3, _count, _address, *[_count] * 3],
    "layer_norm": [_address, _count, _count, _address, _address, ctypes.c_float, _address],
    "likeliest": [_address, *[_count] * 3, _address, _address],
    "block": [_address, _address, _count, _count, *[_address] * 5, _count],
}  # fmt: skip


@dataclass(frozen=True)
class Panels:
    """A matrix in 8 bits in the layout that the kernel reads."""

    weight: Int8[Tensor, "panel quad output 4"]
    scale: Float[Tensor, " out"]
    above: Int32[Tensor, " out"]  # 128 · the sum of each output's weights, because bytes are activations + 128
    bias: Float[Tensor, " out"] | None

    @classmethod
    def of(cls, weight: Int8[Tensor, "out in"], scale: Float[Tensor, " out"], bias: Tensor | None) -> "Panels":
        n_out, n_in = weight.shape
        filled = torch.zeros(-(-n_out // PANEL) * PANEL, n_in, dtype=torch.int8)
        filled[:n_out] = weight
        panels = filled.view(-1, PANEL, n_in // QUAD, QUAD).transpose(1, 2).contiguous()
        above = (weight.sum(dim=1, dtype=torch.int32) * 128).contiguous()
        return cls(panels, scale.contiguous(), above, None if bias is None else bias.contiguous())


@cache
def supported() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.cpu._is_vnni_supported()


@cache
def library() -> Any:
    """The compiled kernels, which take what `fit` accepts; None if they are not available."""
    if os.environ.get("CUTAWAY_KERNELS") == "0" or not supported():
        return None
    try:
        kernels = ctypes.CDLL(str(compiled(cache_folder())))
        for name, arguments in ARGUMENTS.items():
            getattr(kernels, name).argtypes, getattr(kernels, name).restype = arguments, None
    except UNAVAILABLE:
        return None
    return kernels


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway"


def compiled(folder: Path) -> Path:
    """The library in this folder, compiled first if it is not there. Raises an OSError if it cannot be compiled."""
    source = files("cutaway.model.kernels").joinpath("cpu.cpp").read_bytes()
    ready = folder / f"kernels-{sha256(source + ' '.join(FLAGS).encode()).hexdigest()[:16]}.so"
    if ready.exists():
        return ready
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if shutil.which(compiler[0]) is None:
        raise FileNotFoundError(f"the C++ compiler {compiler[0]} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as here:
        made = Path(here) / ready.name
        command = [*compiler, *FLAGS, "-x", "c++", "-", "-o", str(made)]
        done = subprocess.run(command, input=source, capture_output=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise OSError(f"{compiler[0]} does not compile our kernels: {done.stderr.decode(errors='replace')[-500:]}")
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(ready)  # atomic: several processes may do this at once
    return ready


def fit(*given: Tensor) -> bool:
    """Whether the kernels can be given these tensors: single precision on a CPU, without gradients and without tracing.

    It does not depend on the number of threads: with `watch`, which uses a single engine, the bits are the same.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or library() is None:
        return False
    for x in given:
        if x.dtype is not torch.float32 or not x.is_cpu or type(x) not in PLAIN:
            return False
    return (
        torch._C._get_tracing_state() is None
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )


def linear(x: Float[Tensor, "*rows in"], panels: Panels) -> Float[Tensor, "*rows out"]:
    x = x.contiguous()
    n_out, n_in = len(panels.scale), x.shape[-1]
    y = x.new_empty(*x.shape[:-1], n_out)
    matrix = panels.weight.data_ptr(), panels.scale.data_ptr(), panels.above.data_ptr(), _at(panels.bias)
    threads = max(1, min(torch.get_num_threads(), y.numel() * n_in // SHARE))
    library().linear(x.data_ptr(), x.numel() // n_in, *matrix, n_in, n_out, y.data_ptr(), threads)
    return y


def attends(query: Tensor, key: Tensor, value: Tensor, *, packed: bool) -> bool:
    """Whether `attend` can be given these tensors."""
    return (
        query.shape[-1] in WIDTHS
        and (packed or len(key) == len(query))
        and query.shape[1] == key.shape[1]
        and value.shape[-1] == key.shape[-1]
        and key.stride() == value.stride()
        and key.stride(3) == query.stride(3) == 1
        and fit(query, key, value)
    )


def attend(
    query: Float[Tensor, "rows head query d_head"],
    key: Float[Tensor, "batch head key d_head"],
    value: Float[Tensor, "batch head key d_head"],
    table: Float[Tensor, "#batch 1 #hypothesis key"] | None,
    scale: float,
    packing: Packing | None,
) -> Float[Tensor, "rows head query d_head"]:
    """softmax(QKᵀ · scale + table) V. Packed queries are one row, and so are their results."""
    n_rows, heads, each, d_head = query.shape
    mixed = query.new_empty(n_rows, each, heads, d_head)
    strides = (0, 0) if table is None else (table.stride(0) * (len(table) > 1), table.stride(2) * (table.shape[2] > 1))
    where = (None, None) if packing is None else (packing.rows.data_ptr(), packing.places.data_ptr())
    query, stride = _by_token(query)
    library().attend(
        query.data_ptr(), stride, key.data_ptr(), value.data_ptr(), *key.stride()[:3], _at(table), *strides,
        *where, n_rows * each, each, heads, key.shape[2], d_head, scale, mixed.data_ptr(),
    )  # fmt: skip
    return mixed.transpose(1, 2)


def appends(store: Tensor, new: Tensor) -> bool:
    """Whether `append` can be given these tensors."""
    return new.stride(3) == store.stride(3) == 1 and fit(store, new)


def append(
    store: Float[Tensor, "batch head slot d_head"],
    new: Float[Tensor, "rows head seq d_head"],
    slots: Int[Tensor, "rows seq"],
    packing: Packing | None,
) -> None:
    """`store[row, :, slot] = vector` for every new token; `packing` has the rows of packed tokens."""
    n_rows, heads, each, d_head = new.shape
    new, stride = _by_token(new)
    slots, rows = slots.contiguous(), None if packing is None else packing.rows.data_ptr()
    library().append(
        new.data_ptr(), stride, store.data_ptr(), *store.stride()[:3], rows, slots.data_ptr(),
        n_rows * each, each, heads, d_head,
    )  # fmt: skip


def keeps(store: Tensor) -> bool:
    """Whether `keep` can be given this tensor."""
    return store.stride(3) == 1 and fit(store)


def keep(
    store: Float[Tensor, "batch head slot d_head"],
    rows: Int[Tensor, " some"],
    to: Int[Tensor, " some"],
    counts: Int[Tensor, " some"],
    slots: Int[Tensor, "some most"] | None = None,
) -> None:
    """`store[to, :, :count] = store[row, :, slots[:count]]`, in place. Slots ascend; the default is 0 … count − 1."""
    stride = 0 if slots is None else slots.stride(0)
    library().keep(
        store.data_ptr(), *store.stride()[:3], rows.data_ptr(), to.data_ptr(), _at(slots), stride, counts.data_ptr(),
        len(rows), store.shape[1], store.shape[3],
    )  # fmt: skip


def layer_norm(
    x: Float[Tensor, "*rows d_model"], weight: Float[Tensor, " d_model"], bias: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "*rows d_model"]:
    x = x.contiguous()
    y, d = torch.empty_like(x), x.shape[-1]
    library().layer_norm(
        x.data_ptr(), x.numel() // d, d, weight.data_ptr(), bias.data_ptr(), eps, y.data_ptr()
    )  # fmt: skip
    return y


def likeliest(logits: Float[Tensor, "*rows vocab"], k: int) -> tuple[Float[Tensor, "*rows k"], Int[Tensor, "*rows k"]]:
    """`logits.log_softmax(dim=-1).topk(k)`; of equal logits, the first."""
    logits = logits.contiguous()
    vocab = logits.shape[-1]
    log_p = logits.new_empty(*logits.shape[:-1], k)
    ids = torch.empty(log_p.shape, dtype=torch.long)
    library().likeliest(logits.data_ptr(), logits.numel() // vocab, vocab, k, log_p.data_ptr(), ids.data_ptr())
    return log_p, ids


def block(*given: object) -> None:
    """See `cutaway.model.kernels.step_cpu`."""
    library().block(*given)


def _by_token(x: Float[Tensor, "rows head seq d_head"]) -> tuple[Tensor, int]:
    """x with the same distance from each token to the next, across rows too, and this distance."""
    n_rows, heads, each, d_head = x.shape
    if heads == 1 or x.stride(1) == d_head:
        if each == 1:
            return x, x.stride(0)
        if n_rows == 1 or x.stride(0) == each * x.stride(2):
            return x, x.stride(2)
    return x.transpose(1, 2).contiguous(), heads * d_head


def _at(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()
