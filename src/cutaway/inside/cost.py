"""What a forward pass costs, read off the forward pass itself.

On the meta device tensors have shapes and no memory, so that the real code runs through in milliseconds, whatever the
size of the model. `Meter` stands below autograd and sees every operation: it adds up the FLOPs of matrix products
(a multiplication and an addition are 2) and the bytes that are alive. What is alive when a pass with gradients has
ended is what the backward pass needs, and the output.
"""

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

look_up_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
with_learned_bias = torch.ops.aten._scaled_dot_product_efficient_attention


class Meter(TorchDispatchMode):
    """Counts what runs inside `with Meter(model)`, part by part.

    `products` and `look_ups` are FLOPs by part: with weights, and of queries with keys and patterns with values.
    `order` lists the parts as they began to run.
    """

    def __init__(self, model: nn.Module, *inputs: Tensor) -> None:
        super().__init__()
        self.model = model
        self.products: Counter[str] = Counter()
        self.look_ups: Counter[str] = Counter()
        self.order: dict[str, int] = {}
        self.alive = self.peak = 0
        self._sizes: dict[int, int] = {}
        there_before = (*model.parameters(), *model.buffers(), *inputs)
        self._ignored = {tensor.untyped_storage()._cdata for tensor in there_before}
        self._running: list[str] = []

    def __enter__(self) -> "Meter":
        self._hooks = [hook for name, part in self.model.named_modules() for hook in self._follow(name, part)]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)

    def flops(self, path: str) -> int:
        """Of a part and everything in it."""
        both = (*self.products.items(), *self.look_ups.items())
        return sum(n for where, n in both if where == path or where.startswith(f"{path}."))

    def _follow(self, name: str, part: nn.Module) -> Iterator[torch.utils.hooks.RemovableHandle]:
        yield part.register_forward_pre_hook(lambda *_: self._begin(name))
        yield part.register_forward_hook(lambda *_: self._end(), always_call=True)

    def _begin(self, name: str) -> None:
        self._running.append(name)
        self.order.setdefault(name, len(self.order))

    def _end(self) -> None:
        self._running.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        part = self._running[-1] if self._running else ""
        if func.overloadpacket in (look_up_kernel, with_learned_bias):
            self.look_ups[part] += look_up_flops(*args[:3])
        elif func.overloadpacket in flop_registry:
            self.products[part] += flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._ignored or key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.alive += storage.nbytes()
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)


def look_up_flops(
    query: Float[Tensor, "batch head query d_head"], key: Float[Tensor, "_ _ key _"], value: Float[Tensor, "_ _ _ d_v"]
) -> int:
    """Every query with every key, then every pattern with every value, as PaLM counts.

    A kernel that skips the future does about half of it.
    """
    n_rows, n_keys = query.shape[:-1].numel(), key.shape[-2]
    return 2 * n_rows * n_keys * (query.shape[-1] + value.shape[-1])


class FusedKernels(TorchFunctionMode):
    """Runs the three functions that PyTorch spells out on the meta device as the one kernel each is on a GPU.

    Spelled out, attention would keep its whole pattern for the backward pass and dropout a number in place of a bit.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FUSED.get(func, func)(*args, **(kwargs or {}))


def fused_look_up(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_value"],
    attn_mask: Shaped[Tensor, "#batch #head #query key"] | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "batch head query d_value"]:
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # kernels add a mask to the scores, so it is a number
        attn_mask = torch.where(attn_mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype, device=query.device))
    if attn_mask is not None and attn_mask.requires_grad:  # T5's bias learns too, which only one kernel allows
        return with_learned_bias(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
    return look_up_kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def fused_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, training)[0] if training and p > 0 else x


class FusedRMSNorm(torch.autograd.Function):
    """What the kernel keeps: its input, and one number for each vector."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)


def fused_rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor, eps: float) -> Tensor:
    return FusedRMSNorm.apply(x, weight)


FUSED: dict[Any, Any] = {
    F.scaled_dot_product_attention: fused_look_up,
    F.dropout: fused_dropout,
    F.rms_norm: fused_rms_norm,
}


@contextmanager
def measured_cost(model: nn.Module, *inputs: Tensor, gradients: bool) -> Iterator[Meter]:
    """A meter around a pass as a GPU would run it: to train, or only to answer."""
    model.train(gradients)
    with torch.set_grad_enabled(gradients), FusedKernels(), Meter(model, *inputs) as meter:
        yield meter
