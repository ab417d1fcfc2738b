"""The tuned lens (Belrose et al. 2023): an affine map for each layer, h + Ah + b, before the final norm and the head.

It is trained on any text, in minutes, to minimise the KL divergence from the answers of the last layer. A and b start
at 0, where the tuned lens is the logit lens.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import InputError
from cutaway.inside.progress import Progress, counted_progress, no_progress
from cutaway.inside.residual.decompose import check_model
from cutaway.inside.residual.logit_lens import POOLED, logit_lens, residual_streams
from cutaway.model.encoder import Stack
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.model.upcast import upcast

Batches = Sequence[Sequence[Tensor]]  # each one is a sequence of inputs of the model


class TunedLens(nn.Module):
    """`logit_lens(model, ids, tuned=lens)`. A lens belongs to one model, and refuses others.

    >>> lens = TunedLens(model)
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        model = check_model(model, {})
        self.side = "decoder" if isinstance(getattr(model, "decoder", None), Stack) else "encoder"
        n_layers, d_model = len(getattr(model, self.side)), model.config.d_model  # type: ignore[attr-defined]
        self.layers = (f"{self.side}.0.residual_before", *(f"{self.side}.{i}.residual_after" for i in range(n_layers)))
        self.fingerprint = model_fingerprint(model)
        nothing = torch.zeros(
            n_layers, d_model, dtype=torch.promote_types(model.dtype, torch.float32), device=model.device
        )
        self.weight = nn.Parameter(nothing[..., None].repeat(1, 1, d_model))  # the last layer needs none
        self.bias = nn.Parameter(nothing)

    def translate(self, layer: str, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Maps the stream after a layer to that of the last layer."""
        number = self.layers.index(layer)
        if number == len(self.weight):
            return x
        wide = x.to(self.weight.dtype)
        return (wide + wide @ self.weight[number].T + self.bias[number]).to(x.dtype)

    def check(self, model: Model, layers: Sequence[str]) -> None:
        """Refuses another model. Reads all weights, which may have been trained further; this takes up to a second."""
        same = model_fingerprint(model) == self.fingerprint
        if not same or tuple(layers) != self.layers:
            raise InputError("this tuned lens was trained for another model, or for other weights: train one for this")

    def save(self, path: Path | str) -> None:
        """A safetensors file."""
        mark = torch.tensor(list(self.fingerprint), dtype=torch.uint8)
        write_tensors(Path(path), {"weight": self.weight, "bias": self.bias, "fingerprint": mark})

    @classmethod
    def load(cls, path: Path | str, model: Model) -> "TunedLens":
        """Loads the lens of this model, and refuses that of another."""
        lens, source = cls(model), open_tensors(Path(path))
        if bytes(source.read("fingerprint").tolist()) != lens.fingerprint:
            raise InputError(f"{path} is the lens of another model, or of other weights: train one for this")
        with torch.no_grad():
            for name, parameter in lens.named_parameters():
                source.copy_into(name, parameter)
        return lens


def model_fingerprint(model: nn.Module) -> bytes:
    """A hash of the config and all weights, in single precision whatever they are stored in."""
    body = cast(Model, uncompiled(model))
    digest = hashlib.sha256(json.dumps(body.config.to_dict(), sort_keys=True).encode())
    for name, value in sorted(body.state_dict().items()):  # 8-bit weights are no parameters
        digest.update(name.encode())
        digest.update(value.float().cpu().reshape(-1).numpy().data)
    return digest.digest()


@checked
def train_tuned_lens(
    model: Model, batches: Batches, *, rate: float = 1e-3, progress: Progress = no_progress
) -> TunedLens:
    """Trains the maps of all layers at once, one step for each batch; the model is not changed.

    >>> train_tuned_lens(model, [(ids,), (other_ids,)])
    """
    model = check_model(model, {})
    if isinstance(model.head, POOLED):
        raise InputError(
            f"a tuned lens is trained on many tokens, and {type(model.head).__name__} gives one answer per text"
        )
    if not batches:
        raise InputError("there are no batches to train on")
    lens = TunedLens(model)
    optimizer = torch.optim.AdamW(lens.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    for step, given in enumerate(counted_progress(batches, progress)):
        warm, left = (step + 1) / max(1, len(batches) // 10), 1 - step / len(batches)
        optimizer.param_groups[0]["lr"] = rate * min(1.0, warm, left)
        _set_gradients(model, lens, given)
        optimizer.step()
    return lens.requires_grad_(False)


def _set_gradients(model: Model, lens: TunedLens, given: Sequence[Tensor]) -> None:
    """Sets the gradients of the KL of all layers, one layer at a time, to save memory."""
    with torch.no_grad():
        states = residual_streams(model, *given, stream=lens.side, normed=False)
        last = _log_p(model, lens, states[lens.layers[-1]])
    for parameter in lens.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for layer in lens.layers[:-1]:
        with torch.enable_grad():
            log_p = _log_p(model, lens, lens.translate(layer, states[layer]))
            kl = (last.exp() * (last - log_p)).sum(-1).mean()
        # only of the lens, so that the gradients of the model stay as they are
        found = torch.autograd.grad(kl, tuple(lens.parameters()))
        for parameter, gradient in zip(lens.parameters(), found, strict=True):
            parameter.grad += gradient  # type: ignore[operator]


def _log_p(model: Model, lens: TunedLens, x: Tensor) -> Tensor:
    norm = getattr(model, lens.side).final_norm
    logits = model.head(x if norm is None else norm(x))
    return upcast(logits).log_softmax(-1)


@checked
def kl_by_layer(
    model: Model, batches: Batches, *, tuned: TunedLens | None = None, progress: Progress = no_progress
) -> dict[str, float]:
    """The mean KL divergence of each layer's answers from the last layer's, in nats per position.

    >>> kl_by_layer(model, [(ids,)])
    """
    found = [logit_lens(model, *given, top=1, tuned=tuned) for given in counted_progress(batches, progress)]
    mean = torch.cat([lens.kl.double().flatten(1) for lens in found], dim=1).mean(1)
    return dict(zip(found[0].layers, mean.tolist(), strict=True))
