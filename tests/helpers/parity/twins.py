"""The same network twice: `transformers` with tiny random weights, and what Cutaway makes of the folder it saves.

    twins = twins_of(GPT2LMHeadModel(GPT2Config(n_embd=16, …)), tmp_path)      # their weights drawn anew, saved, loaded
    a, b = twins.ours(ids), twins.theirs(ids).logits
    assert_close(a, b, 1e-5)
    assert_same_gradients(twins, a, b, 1e-5, tmp_path / "gradients")
    assert_goes_out_again(twins, lambda theirs: theirs(ids).logits, tmp_path)
    assert_kept_by_our_own_folder(twins, lambda ours: ours(ids), tmp_path)

All errors are relative to the largest number of the tensor that is compared, or to 1 where that is smaller.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from cutaway.checkpoints import export, load, save
from cutaway.checkpoints.hf import exported_layout
from cutaway.model.model import Model

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@dataclass
class Twins:
    """Two models with the same weights, and the folder that the first was saved to."""

    theirs: PreTrainedModel
    ours: Model
    folder: Path


def twins_of(theirs: PreTrainedModel, folder: Path, dtype: torch.dtype = torch.float32) -> Twins:
    """Draws their weights, saves them as they do, loads them as we do."""
    draw(theirs)
    theirs = theirs.to(dtype).eval()
    theirs.save_pretrained(folder)
    return Twins(theirs, load(folder, dtype=dtype), folder)


@torch.no_grad()
def draw(model: nn.Module, seed: int = 0) -> None:
    """Large random numbers for everything that is trained, so that no two tensors can be mistaken for each other."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:  # a frozen table is no weight
            noise = 0.3 * torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(1 + noise if is_norm else noise)


def error(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest number or to 1."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} here, {tuple(theirs.shape)} there"
    assert ours.dtype == theirs.dtype, f"{ours.dtype} here, {theirs.dtype} there"
    assert ours.isfinite().all()
    assert theirs.isfinite().all()
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)).item()


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    found = error(ours, theirs)
    assert found <= tolerance, (
        f"the largest difference is {found:.2e} of the largest number; {tolerance:.0e} is allowed"
    )


def assert_same_gradients(twins: Twins, ours: Tensor, theirs: Tensor, tolerance: float, folder: Path) -> None:
    """The gradients of one scalar, by every weight that they store, under their names.

    Relative to the largest gradient of each tensor, and forgiving the last bit of the largest of all: the gradient of a
    key's bias is 0 in exact arithmetic, and nothing but rounding here."""
    direction = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(1)).to(theirs)
    for model, output in ((twins.ours, ours), (twins.theirs, theirs)):
        model.zero_grad()
        (output * direction).sum().backward()
    wanted, given = stored_gradients(twins.theirs, folder), our_gradients(twins.ours)
    ignored = tuple(exported_layout(twins.ours.config).ignored)
    for name in [name for name in wanted if name not in given and name.endswith(ignored)]:
        assert not wanted.pop(name).any(), f"{name} is ignored, but it has a gradient"
    # what they keep as a buffer and do not train, such as Marian's output bias, is a weight here
    assert set(wanted) == set(given) - {name for name, _ in twins.theirs.named_buffers()}
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    assert largest > 0
    for name, gradient in wanted.items():
        found, size = (given[name] - gradient).abs().max().item(), gradient.abs().max().item()
        allowed = tolerance * size + 4 * torch.finfo(gradient.dtype).eps * largest
        assert found <= allowed, f"{name}: off by {found:.2e} where {allowed:.2e} is allowed (it is up to {size:.2e})"


def our_gradients(model: Model) -> dict[str, Tensor]:
    """Our gradients as the layout gives our weights away: under their names, in their shapes."""
    ours = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    rules = exported_layout(model.config).rules
    return {name: gradient for own, rule in rules.items() for name, gradient in rule.give(ours[own]).items()}


def stored_gradients(model: PreTrainedModel, folder: Path) -> dict[str, Tensor]:
    """Their gradients under the names of their files: a copy whose weights are the gradients is saved."""
    twin = deepcopy(model)
    untrained = {name for name, _ in twin.named_buffers()}
    untrained |= {name for name, parameter in twin.named_parameters() if not parameter.requires_grad}
    for parameter, source in zip(twin.parameters(), model.parameters(), strict=True):
        parameter.data = torch.zeros_like(source) if source.grad is None else source.grad.clone()
    twin.save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    return {name: gradient for name, gradient in stored.items() if name not in untrained}


def assert_goes_out_again(
    twins: Twins,
    run: Callable[[PreTrainedModel], Tensor],
    folder: Path,
    computed: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """What we export, they load without a missing or a spare tensor (`computed` aside), and get the same bits."""
    export(twins.ours, folder)
    kind, dtype = type(twins.theirs), twins.theirs.dtype
    again, report = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True, **options)
    missing = {name for name in report["missing_keys"] if not name.endswith(computed or ("\0",))}
    assert not any((missing, report["unexpected_keys"], report["mismatched_keys"])), report
    assert_same_bits(again.eval(), twins.theirs, run)


def assert_kept_by_our_own_folder(twins: Twins, run: Callable[[Model], Tensor], folder: Path) -> None:
    """Saved as our own folder and loaded again, it is the same model, bit for bit."""
    save(twins.ours, folder)
    again = load(folder, dtype=twins.ours.dtype)
    assert again.config == twins.ours.config
    assert_same_bits(again, twins.ours, run)


def assert_same_bits(one: nn.Module, other: nn.Module, run: Callable[[Any], Tensor]) -> None:
    with torch.no_grad():
        assert torch.equal(run(one), run(other))


def n_parameters(model: nn.Module) -> int:
    """What is trained, tied weights once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
