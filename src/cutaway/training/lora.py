"""LoRA (Hu et al. 2021): a weight matrix is frozen, and an adapter of low rank is trained: Wx + (α / r) · B(Ax).

At the end the adapter is merged into the matrix, so that a saved model is an ordinary one.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import ConfigError
from cutaway.model.tap import Part


class Detour(Part):
    """A frozen linear map with a trained adapter of this rank, which is 0 at the start."""

    def __init__(self, frozen: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, alpha / rank
        self.inward = nn.Parameter(torch.empty(rank, frozen.in_features, device=frozen.weight.device))
        self.outward = nn.Parameter(torch.zeros(frozen.out_features, rank, device=frozen.weight.device))
        nn.init.kaiming_uniform_(self.inward, a=5**0.5)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return self.frozen(x) + (x @ self.inward.T.to(x.dtype) @ self.outward.T.to(x.dtype)) * self.scale

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The frozen map with the adapter added."""
        self.frozen.weight += self.outward.double() @ self.inward.double() * self.scale
        return self.frozen


def add_lora(model: nn.Module, rank: int, alpha: float, patterns: Sequence[str]) -> None:
    """Freezes the model, except its head, and gives each linear map whose name matches a pattern an adapter."""
    found = [
        (name, part)
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and any(fnmatchcase(_place(name), pattern) for pattern in patterns)
    ]
    if not found:
        raise ConfigError(f"no linear map of this model matches {', '.join(patterns)} (train.lora_parts)")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    for name, part in found:
        _replace(model, name, Detour(part, rank, alpha))


def _place(name: str) -> str:
    """The name for patterns: a decoder's `cross` is attention, too."""
    return name.replace(".cross.", ".cross_attention.")


def merge_lora(model: nn.Module) -> None:
    """Merges all adapters into their matrices."""
    for name, part in list(model.named_modules()):
        if isinstance(part, Detour):
            _replace(model, name, part.merged())


def _replace(model: nn.Module, name: str, part: nn.Module) -> None:
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, part)


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes the parameters whose names match a pattern; with LoRA they have the same names as without."""
    named = [(name.replace(".frozen.", "."), parameter) for name, parameter in model.named_parameters()]
    for pattern in patterns:
        fitting = [parameter for name, parameter in named if fnmatchcase(name, pattern)]
        if not fitting:
            raise ConfigError(f"no parameter of this model matches {pattern!r} (train.freeze)")
        for parameter in fitting:
            parameter.requires_grad_(False)
