"""Shapes are checked: the first calls of each function in each test, and one in many of those that follow."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jaxtyping
import pytest
import torch
from helpers.shape_check import check, next_test, sampled
from jaxtyping import Float
from torch import Tensor

from cutaway.model.norms import RMSNorm

N = 2100


@sampled(typechecker=check)
def doubled(x: Float[Tensor, "row n"]) -> Float[Tensor, "row n"]:
    return 2 * x


@sampled(typechecker=check)
@dataclass
class Row:
    values: Float[Tensor, "row n"]


def refused(call: Callable[..., Any]) -> list[int]:
    """Which of N calls with a wrong shape are."""
    found = []
    for number in range(1, N + 1):
        try:
            call(torch.ones(3))
        except jaxtyping.TypeCheckError:
            found.append(number)
    return found


@pytest.mark.parametrize("call", [doubled, Row])
def test_first_calls_and_samples_are_checked_and_again_in_the_next_test(call: Callable[..., Any]):
    for _ in range(2):
        next_test()
        assert refused(call) == [1, 2, 3, 4, 1024, 2048]
    next_test()
    call(torch.ones(2, 3))


@pytest.mark.skipif(os.environ.get("CUTAWAY_TYPECHECK") == "0", reason="this session does without")
def test_the_parts_of_cutaway_are_checked():
    with pytest.raises(jaxtyping.TypeCheckError, match="RMSNorm"):
        RMSNorm(4)(torch.ones(4, dtype=torch.int64))
