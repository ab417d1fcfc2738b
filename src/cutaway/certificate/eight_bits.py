"""A model with 8-bit matrices, measured in two steps.

Activations are rounded to whole numbers there, and another last bit may tip a rounding over: scores then move by a
hundredth in a sound model, and by no more in some broken ones. So the laws are measured with the same matrices and with
activations as they are, where they hold as closely as in any model (`unrounded`). And each product by itself is held
against double precision, on numbers that rounding leaves alone (`worst_product`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.model import Model

ROWS = 64  # of a batch, more than a kernel for a few takes
ALONE = 8  # that are multiplied by themselves besides
SIZES = range(-10, 4)  # powers of two that one step of an activation is worth, another in the next row
AT_ONCE = 4096  # outputs that are computed in double precision


def matrices_of(model: Model) -> dict[str, Int8Linear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, Int8Linear)}


def has_8_bits(model: Model) -> bool:
    return bool(matrices_of(model))


@contextmanager
def unrounded(model: Model) -> Iterator[None]:
    """Activations are not rounded for a while."""
    parts = matrices_of(model).values()
    try:
        for part in parts:
            part.forward = partial(F.linear, weight=part.weight * part.scale[:, None], bias=part.bias)  # type: ignore
        yield
    finally:
        for part in parts:
            vars(part).pop("forward", None)


@torch.no_grad()
def worst_product(part: Int8Linear) -> float:
    """How far its products are from those in double precision, of each row's largest number."""
    x = unroundable(part)
    bias = None if part.bias is None else part.bias.double().split(AT_ONCE)
    exact = torch.cat(
        [
            F.linear(x.double(), weight.double() * scale.double()[:, None], None if bias is None else bias[i])
            for i, (weight, scale) in enumerate(zip(part.weight.split(AT_ONCE), part.scale.split(AT_ONCE), strict=True))
        ],
        dim=-1,
    )
    product = partial(type(part).forward, part)  # its own, whatever stands in for it
    off = []
    for grad in (False, True):  # each has kernels of its own
        with torch.set_grad_enabled(grad):
            alone = torch.cat([product(row[None]) for row in x[:ALONE]])
            off += [product(x).detach() - exact, alone.detach() - exact[:ALONE]]
    largest = exact.abs().amax(dim=-1).clamp(min=1e-30)
    worst = float(torch.cat([some.abs().amax(dim=-1) / largest[: len(some)] for some in off]).max())
    return worst if worst < float("inf") else float("nan")


def unroundable(part: Int8Linear) -> Float[Tensor, "row in"]:
    """Whole numbers times a power of two, which rounding leaves alone, each row with a scale of its own.

    Half of the rows have only largest numbers, of the signs of an output that may become largest: if its sum does not
    overflow, none does. The others are random.
    """
    generator = torch.Generator().manual_seed(0)
    largest = part.weight.abs().sum(dim=1, dtype=torch.long).argsort(descending=True)[: ROWS // 2]
    signs = part.weight[largest].cpu().long().sign()
    signs[signs == 0] = 1
    n, n_in = ROWS - len(signs), signs.shape[1]
    whole = torch.randint(-part.levels, part.levels + 1, (n, n_in), generator=generator)
    whole[torch.arange(n), torch.randint(n_in, (n,), generator=generator)] = part.levels
    whole = torch.cat([whole, part.levels * signs])
    order = torch.randperm(ROWS, generator=generator)
    size = 2.0 ** torch.tensor([SIZES[i % len(SIZES)] for i in range(ROWS)])
    return (whole[order] * size[:, None]).to(part.scale)
