"""Models with 8-bit matrices, which are measured in two steps.

They round activations to integers, where a difference in the last bit can change the result of rounding: scores of a
sound model then differ by a hundredth, and those of some broken models by no more. So the laws are measured with the
8-bit matrices but without rounding activations, which makes them as exact as in any model (`unrounded`). And each
product by itself is compared with double precision, on numbers that rounding does not change (`worst_product`).
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

ROWS = 64  # of a batch; more than the kernels for a few rows take
ALONE = 8  # rows that are also multiplied one by one
SIZES = range(-10, 4)  # exponents of the scale of a row of activations; each row has another one
AT_ONCE = 4096  # outputs that are computed in double precision at a time


def matrices_of(model: Model) -> dict[str, Int8Linear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, Int8Linear)}


def has_8_bits(model: Model) -> bool:
    return bool(matrices_of(model))


@contextmanager
def unrounded(model: Model) -> Iterator[None]:
    """Inside this context, activations are not rounded."""
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
    """The largest error of its products, relative to the largest number of each row in double precision."""
    x = unroundable(part)
    bias = None if part.bias is None else part.bias.double().split(AT_ONCE)
    exact = torch.cat(
        [
            F.linear(x.double(), weight.double() * scale.double()[:, None], None if bias is None else bias[i])
            for i, (weight, scale) in enumerate(zip(part.weight.split(AT_ONCE), part.scale.split(AT_ONCE), strict=True))
        ],
        dim=-1,
    )
    product = partial(type(part).forward, part)  # its own forward, also inside `unrounded`
    off = []
    for grad in (False, True):  # with and without gradients there are different kernels
        with torch.set_grad_enabled(grad):
            alone = torch.cat([product(row[None]) for row in x[:ALONE]])
            off += [product(x).detach() - exact, alone.detach() - exact[:ALONE]]
    largest = exact.abs().amax(dim=-1).clamp(min=1e-30)
    worst = float(torch.cat([some.abs().amax(dim=-1) / largest[: len(some)] for some in off]).max())
    return worst if worst < float("inf") else float("nan")


def unroundable(part: Int8Linear) -> Float[Tensor, "row in"]:
    """Integers times a power of two, another one for each row: rounding does not change them.

    Half of the rows are random. In the others every number is the largest integer, with the sign of one output's
    weights, for the outputs with the largest sums: if these do not overflow, none does.
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
