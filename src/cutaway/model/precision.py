"""The precision that a model runs in, chosen with one word."""

from typing import Literal, TypeVar, get_args

import torch

from cutaway.errors import InputError
from cutaway.model.kernels.int8 import to_int8
from cutaway.model.model import Model

Precision = Literal["fp32", "bf16", "int8"]
M = TypeVar("M", bound=Model)


def with_precision(model: M, precision: Precision) -> M:
    """The same model, changed in place: its weights in 32 or 16 bits, or its matrices in 8."""
    match precision:
        case "fp32":
            return model.to(torch.float32)
        case "bf16":
            return model.to(torch.bfloat16)
        case "int8":
            return to_int8(model.to(torch.float32))
    raise InputError(f"precision={precision!r} is not one of {', '.join(get_args(Precision))}")
