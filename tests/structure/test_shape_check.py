"""Shapes are checked: the first calls of each function in each test, and one in many of those that follow."""

import os

import jaxtyping
import pytest
import torch
from helpers.shape_check import FIRST, THEN, check, next_test, sampled
from jaxtyping import Float
from torch import Tensor

from cutaway.model.norms import RMSNorm


@sampled(typechecker=check)
def doubled(x: Float[Tensor, "row n"]) -> Float[Tensor, "row n"]:
    return 2 * x


def refused() -> list[int]:
    """Of 200 calls with a wrong shape."""
    found = []
    for call in range(1, 201):
        try:
            doubled(torch.ones(3))
        except jaxtyping.TypeCheckError:
            found.append(call)
    return found


def test_first_calls_and_samples_are_checked_and_again_in_the_next_test():
    wanted = [call for call in range(1, 201) if call <= FIRST or call % THEN == 0]
    assert len(wanted) == FIRST + 200 // THEN
    next_test()
    assert refused() == wanted
    next_test()
    assert refused() == wanted
    next_test()
    assert torch.equal(doubled(torch.ones(2, 3)), torch.full((2, 3), 2.0))


@pytest.mark.skipif(os.environ.get("CUTAWAY_TYPECHECK") == "0", reason="this session does without")
def test_the_parts_of_cutaway_are_checked():
    with pytest.raises(jaxtyping.TypeCheckError, match="RMSNorm"):
        RMSNorm(4)(torch.ones(4, dtype=torch.int64))
