"""The feed-forward network makes features: max(0, xW₁ + b₁)W₂ + b₂, for each position by itself.

Each column of W₁ looks for a combination of inputs, the activation decides whether it is present, and the row of W₂
with the same number is what a present feature writes. (Attention Is All You Need, section 3.3; Shazeer 2020 for the
gated form.)
"""

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import ConfigError
from cutaway.model.dropout import Dropout
from cutaway.model.kernels.linear import Linear
from cutaway.model.tap import Part

Activation = Callable[[Tensor], Tensor]


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """x/2 · (1 + tanh y) = x · sigmoid(2y): on a GPU, the second form compiles to cheaper operations."""
    if x.is_cuda and torch.compiler.is_compiling():
        return x * torch.sigmoid(8**0.5 / pi**0.5 * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation_named(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation={name!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class FeedForward(Part):
    """`down(activation(up(x)))`: up is W₁, b₁, and down is W₂, b₂."""

    taps = {
        "pre_activation": "xW₁ + b₁: how much of each feature is there, before the activation",
        "features": "the features that are present, after the activation",
        "output": "what is written to the residual stream",
    }

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.up, self.down = Linear(d_model, d_ff, bias=bias), Linear(d_ff, d_model, bias=bias)
        self.activation = activation_named(activation)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, "batch seq d_model"]:
        features = self.activation(self.tap("pre_activation", self.up(x)))
        return self.tap("output", self.down(self.dropout(self.tap("features", features))))


class GatedFeedForward(Part):
    """`down(activation(gate(x)) · up(x))`: the gate says how much of each feature passes (SwiGLU, GEGLU)."""

    taps = {
        "gate": "how far each gate is open, after the activation",
        "features": "the features that pass their gates",
        "output": "what is written to the residual stream",
    }

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "silu", *, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.gate_up = Linear(d_model, 2 * d_ff, bias=bias)  # one product for both halves
        self.down = Linear(d_ff, d_model, bias=bias)
        self.activation = activation_named(activation)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, "batch seq d_model"]:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        features = self.tap("features", self.tap("gate", self.activation(gate)) * up)
        return self.tap("output", self.down(self.dropout(features)))
