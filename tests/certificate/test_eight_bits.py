"""With 8-bit matrices, what is sound passes as closely as in any precision, and a wrong product fails by itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import tiny
from torch import Tensor

from cutaway import verify
from cutaway.certificate import Certificate
from cutaway.certificate.eight_bits import ROWS, matrices_of, unroundable, unrounded, worst_product
from cutaway.certificate.entry import TOLERANCE
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.model import Model
from cutaway.model.precision import with_precision


def in_8_bits(name: str, **changes: Any) -> Model:
    return with_precision(tiny(name, dtype=torch.float32, **changes), "int8")


def failed(certificate: Certificate) -> set[str]:
    return {entry.law for entry in certificate.entries if entry.verdict in ("failed", "error")}


# roundings that tipped over made up to 0.025 here
@pytest.mark.parametrize(("name", "seed"), [("t5", 2), ("bert", 1), ("bert", 3), ("llama", 1), ("llama", 2)])
def test_roundings_that_tip_over_fail_nothing(name: str, seed: int) -> None:
    assert failed(verify(in_8_bits(name, seed=seed), quick=True)) == set()


def clamped(self: Int8Linear, x: Tensor) -> Tensor:
    return product(self, x.clamp(-1, 1))


def of_one_scale(self: Int8Linear, x: Tensor) -> Tensor:
    size = x.abs().amax() / self.levels
    found = F.linear((x / size).round(), self.weight.float()) * self.scale * size
    return found if self.bias is None else found + self.bias


def saturated(self: Int8Linear, x: Tensor) -> Tensor:
    """At nine tenths of the largest sum that there can be: in no random row does one become so large."""
    size = x.abs().amax(dim=-1, keepdim=True) / self.levels
    most = 0.9 * self.levels * float(self.weight.float().abs().sum(dim=1).max())
    found = F.linear((x / size).round(), self.weight.float()).clamp(-most, most) * self.scale * size
    return found if self.bias is None else found + self.bias


def without_bias_alone(self: Int8Linear, x: Tensor) -> Tensor:
    found = product(self, x)
    return found if self.bias is None or x.numel() > x.shape[-1] else found - self.bias


product = Int8Linear.forward


@pytest.mark.parametrize("wrong", [clamped, of_one_scale, saturated, without_bias_alone])
def test_a_wrong_product(wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Int8Linear, "forward", wrong)
    certificate = verify(in_8_bits("bert"), quick=True)
    assert failed(certificate) == {"int8 ≈ fp32"}
    assert certificate.entry("int8 ≈ fp32").why.startswith("the product with ")


@pytest.mark.parametrize("grad", [True, False])  # each has packed for itself
def test_weights_that_came_after_they_were_packed(grad: bool) -> None:
    model = in_8_bits("roberta")
    with torch.set_grad_enabled(grad):
        model(torch.arange(6)[None])
    for part in matrices_of(model).values():
        part.weight.copy_(part.weight.roll(1, 0))
    assert failed(verify(model, quick=True)) == {"int8 ≈ fp32"}


def test_rounding_leaves_its_rows_alone() -> None:
    part = Int8Linear(torch.randn(5, 12), None)
    x = unroundable(part)
    size = x.abs().amax(dim=1, keepdim=True) / part.levels
    assert (len(x), len(size.unique())) == (ROWS, 14)
    assert torch.equal((x / size).round() * size, x)
    assert worst_product(part) < TOLERANCE


def test_a_matrix_of_zeros_is_sound() -> None:
    assert worst_product(Int8Linear(torch.zeros(5, 12), None)) == 0.0


def test_activations_are_rounded_again_afterwards() -> None:
    model, ids = in_8_bits("gpt2"), torch.arange(9)[None]
    with torch.no_grad():
        before = model(ids)
        with unrounded(model):
            assert not torch.equal(model(ids), before)
        assert torch.equal(model(ids), before)
