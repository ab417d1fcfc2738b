"""Optimizers: from gradients to new weights.

AdamW (Loshchilov & Hutter 2019), Adam as in 2017 (β₂ = 0.98, ε = 1e-9, no decay), Muon for matrices. Weight decay is
for matrices, not for biases and norms.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cutaway.checkpoints.weight_source import TensorSource
from cutaway.errors import CheckpointError, ConfigError
from cutaway.training.recipe import OptimizerPart

DEFAULTS: dict[str, tuple[tuple[float, float], float, float]] = {  # betas, eps, weight decay
    "adamw": ((0.9, 0.95), 1e-8, 0.1),
    "adam": ((0.9, 0.98), 1e-9, 0.0),
    "muon": ((0.9, 0.95), 1e-8, 0.1),
}
PARTS = {"query_key_value": 3, "key_value": 2, "gate_up": 2}  # matrices that are several in one, stacked by rows


class Optimizer:
    """One or two of torch's optimizers with their parameters' names, one learning rate, and a state to save."""

    def __init__(self, model: nn.Module, recipe: OptimizerPart) -> None:
        if recipe.kind not in DEFAULTS:
            raise ConfigError(f"optimizer.kind={recipe.kind!r} is not one of {', '.join(DEFAULTS)}")
        if len(recipe.betas) not in (0, 2) or not all(0 <= beta < 1 for beta in recipe.betas):
            raise ConfigError(f"optimizer.betas={list(recipe.betas)} must be two numbers below 1")
        self.names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
        if not self.names:
            raise ConfigError("every parameter is frozen: there is nothing to train")
        muon = [p for p, name in self.names.items() if recipe.kind == "muon" and in_a_block(name, p)]
        rest = [p for p in self.names if not any(p is matrix for matrix in muon)]
        shares = shares_of_the_rate(self.names, recipe.layer_decay)
        self.optimizers: list[torch.optim.Optimizer] = []
        if rest:
            self.optimizers.append(_adam(rest, shares, recipe))
        if muon:
            self.optimizers.append(_muon(muon, self.names, shares, recipe))
        self._highest = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    def set_rate(self, share: float) -> None:
        """The learning rates, as a share of their highest."""
        for optimizer, highest in zip(self.optimizers, self._highest, strict=True):
            for group, rate in zip(optimizer.param_groups, highest, strict=True):
                group["lr"] = rate * share

    def step(self, skip: Tensor, divisor: Tensor | None = None) -> None:
        """Updates the weights with the gradient over `divisor`, unless `skip` is 1, without waiting for a GPU."""
        for optimizer in self.optimizers:
            optimizer.found_inf, optimizer.grad_scale = skip, divisor  # type: ignore[attr-defined]
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """Its state, by the parameter's name: `decoder.0.….weight/exp_avg`."""
        return {
            f"{self.names[parameter]}/{key}": value  # type: ignore[index]
            for optimizer in self.optimizers
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
        }

    def load(self, source: TensorSource) -> None:
        """Restores the state that `tensors` gave."""
        wanted: dict[str, dict[str, Tensor]] = {}
        for name in source.names():
            parameter_name, _, key = name.rpartition("/")
            wanted.setdefault(parameter_name, {})[key] = source.read(name)
        if unknown := wanted.keys() - set(self.names.values()):
            raise CheckpointError(f"{source.path} has state of {sorted(unknown)[0]!r}, which is not trained here")
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    kept = wanted.get(self.names[parameter], {})
                    optimizer.state[parameter] = {key: _like(value, parameter) for key, value in kept.items()}


def _like(value: Tensor, parameter: Tensor) -> Tensor:
    """A copy on the parameter's device, where fused optimizers keep the number of steps, too."""
    return value.to(device=parameter.device, copy=True)


def in_a_block(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix of a block, for Muon; embeddings and heads stay with AdamW."""
    return parameter.ndim == 2 and re.search(r"coder\.\d+\.", name) is not None


def layer_of(name: str) -> int:
    """The depth of a parameter: 0 for embeddings, 1 … n for blocks, n + 1 for those after them."""
    found = re.search(r"coder\.(\d+)\.", name)
    if found:
        return int(found[1]) + 1
    return 0 if "embedding" in name else 1 << 10


def shares_of_the_rate(names: Mapping[nn.Parameter, str], layer_decay: float) -> dict[nn.Parameter, float]:
    """1 for a head, `layer_decay` for the last block, its square for the block below, …"""
    layers = {parameter: layer_of(name) for parameter, name in names.items()}
    after = 1 + max((layer for layer in layers.values() if layer < 1 << 10), default=0)
    return {parameter: layer_decay ** (after - min(layer, after)) for parameter, layer in layers.items()}


def _adam(
    parameters: list[nn.Parameter], shares: Mapping[nn.Parameter, float], recipe: OptimizerPart
) -> torch.optim.Optimizer:
    betas, eps, decay = DEFAULTS[recipe.kind]
    decay = decay if recipe.weight_decay is None else recipe.weight_decay
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault((parameter.ndim >= 2, shares[parameter]), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": group, "weight_decay": decay if is_matrix else 0.0, "lr": recipe.rate * share}
            for (is_matrix, share), group in groups.items()
        ],
        lr=recipe.rate,
        betas=(recipe.betas[0], recipe.betas[1]) if recipe.betas else betas,
        eps=eps if recipe.eps is None else recipe.eps,
        fused=True,
    )


def _muon(
    parameters: list[nn.Parameter],
    names: Mapping[nn.Parameter, str],
    shares: Mapping[nn.Parameter, float],
    recipe: OptimizerPart,
) -> torch.optim.Optimizer:
    from cutaway.training.muon import Muon

    groups: dict[tuple[int, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        *_, part, own = names[parameter].split(".")
        n = 1 if own == "inward" else PARTS.get(part, 1)  # LoRA's A is one matrix for all parts
        groups.setdefault((n if parameter.shape[0] % n == 0 else 1, shares[parameter]), []).append(parameter)
    return Muon(
        [{"params": group, "parts": n, "lr": recipe.matrix_rate * share} for (n, share), group in groups.items()],
        lr=recipe.matrix_rate,
        momentum=recipe.momentum,
        weight_decay=DEFAULTS["muon"][2] if recipe.weight_decay is None else recipe.weight_decay,
    )


def gradient_length(parameters: list[nn.Parameter]) -> Tensor:
    """The norm of the whole gradient."""
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)


def clipping(length: Tensor, longest: float) -> Tensor | None:
    """The divisor that clips a gradient of this norm to `longest`; None if that is 0.

    The optimizer divides as it reads the gradient, which saves a pass through memory.
    """
    return ((length + 1e-6) / longest).clamp(min=1.0).float() if longest > 0 else None
