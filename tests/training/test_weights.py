"""What is done to weights beside training them: averages, detours (LoRA), freezing, and computing twice."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ALL, READERS, TRANSLATORS, inputs, some_ids, tiny
from helpers.toy_recipes import near
from torch import nn

from cutaway.checkpoints import load, save
from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import CheckpointError, ConfigError
from cutaway.model.model import Model
from cutaway.training.average import MovingAverage, average_of, weights_of
from cutaway.training.loop import recompute_activations
from cutaway.training.lora import Detour, add_lora, freeze, merge_lora
from cutaway.training.recipe import TrainPart

PARTS = TrainPart().lora_parts


def nudge(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


# --- averages ---------------------------------------------------------------------------------------------------------


def test_a_moving_average_by_its_formula() -> None:
    """average ← d · average + (1 − d) · weights, with d = min(decay, (1 + step) / (10 + step))."""
    model = tiny("gpt2")
    average = MovingAverage(model, 0.5)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(1, 13):
        nudge(model, step)
        average.update(step, torch.zeros((), dtype=torch.float64))
        decay = min(0.5, (1 + step) / (10 + step))
        assert (decay == 0.5) == (step >= 8)
        for name, parameter in model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * parameter.detach()
    for name, weight in average.weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-12, atol=1e-12)


def test_a_step_that_does_not_count_leaves_the_average_alone() -> None:
    model = tiny("gpt2")
    average = MovingAverage(model, 0.5)
    nudge(model, 1)
    before = {name: weight.clone() for name, weight in average.weights.items()}
    average.update(1, torch.ones(()))
    assert all(torch.equal(weight, before[name]) for name, weight in average.weights.items())


def test_a_model_wears_its_average_and_takes_it_off_again() -> None:
    model = tiny("gpt2")
    average = MovingAverage(model, 0.9)
    nudge(model, 3)
    average.update(100, torch.zeros(()))
    own = {name: p.detach().clone() for name, p in model.named_parameters()}

    def wears(weights: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(p, weights[name]) for name, p in model.named_parameters())

    with weights_of(model, average):
        assert wears(average.weights)
    assert wears(own)
    with pytest.raises(ZeroDivisionError), weights_of(model, average):
        raise ZeroDivisionError
    assert wears(own)
    with weights_of(model, None):
        assert wears(own)


def test_an_average_can_be_put_back(tmp_path: Path) -> None:
    model = tiny("gpt2")
    average, other = MovingAverage(model, 0.9), MovingAverage(tiny("gpt2", seed=1), 0.9)
    write_tensors(tmp_path / "average.safetensors", average.weights)
    other.load(open_tensors(tmp_path / "average.safetensors"))
    assert all(torch.equal(other.weights[name], weight) for name, weight in average.weights.items())


def test_the_mean_of_checkpoints(tmp_path: Path) -> None:
    models = [tiny("gpt2", dtype=torch.float32, seed=seed) for seed in range(3)]
    for i, model in enumerate(models):
        write_tensors(tmp_path / f"{i}.safetensors", dict(model.named_parameters()))
    mean = tiny("gpt2", dtype=torch.float32, seed=9)
    average_of([open_tensors(tmp_path / f"{i}.safetensors") for i in range(3)], mean)
    for parameters in zip(mean.parameters(), *(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(parameters[0], torch.stack(parameters[1:]).double().mean(0).float(), rtol=0, atol=0)
    with pytest.raises(CheckpointError, match="no checkpoints"):
        average_of([], mean)


# --- LoRA and freezing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_detours_begin_as_nothing_learn_alone_and_become_part_of_the_matrices(name: str, tmp_path: Path) -> None:
    model, given = tiny(name), inputs(name)
    names = [n for n, _ in model.named_parameters()]
    before = model(*given)
    add_lora(model, 4, 8.0, PARTS)
    assert near(model(*given), before, 1e-12)  # no bit, but that a frozen bias lets attention take a faster kernel
    model(*given).square().sum().backward()
    learn = {n for n, p in model.named_parameters() if p.requires_grad}
    assert {n for n, p in model.named_parameters() if p.grad is not None} == learn
    detours = [n for n in learn if n.endswith(("inward", "outward"))]
    assert all(n.startswith("head") for n in learn - set(detours))
    assert len(detours) == 2 * sum(isinstance(part, Detour) for part in model.modules()) > 0
    for n, parameter in model.named_parameters():
        if n in detours:
            torch.nn.init.normal_(parameter, std=0.3)
    after = model(*given)
    assert not torch.allclose(after, before, atol=1e-2)
    merge_lora(model)
    assert [n for n, _ in model.named_parameters()] == names
    assert near(model(*given), after, 1e-6)
    save(model, tmp_path)
    assert near(load(tmp_path, dtype=torch.float64)(*given), model(*given), 1e-12)


@pytest.mark.parametrize("name", ALL)
def test_every_matrix_of_a_block_has_a_detour_unless_the_recipe_says_otherwise(name: str) -> None:
    """Those that look across at the encoder, too."""
    model = tiny(name)
    matrices = {n for n, part in model.named_modules() if isinstance(part, nn.Linear) and "coder." in n}
    add_lora(model, 4, 8.0, PARTS)
    assert {n for n, part in model.named_modules() if isinstance(part, Detour)} == matrices
    assert any(".cross." in n for n in matrices) == (name in TRANSLATORS)


def test_patterns_tell_looking_across_from_looking_at_oneself() -> None:
    for pattern, parts in (
        ("*.attention.*", {"attention"}),
        ("*.cross*", {"cross"}),
        ("*attention*", {"attention", "cross"}),
    ):
        model = tiny("transformer")
        add_lora(model, 4, 8.0, [pattern])
        assert {n.split(".")[2] for n, part in model.named_modules() if isinstance(part, Detour)} == parts


def test_a_detour_by_its_formula() -> None:
    """Wx + (α / r) · B(Ax)."""
    torch.manual_seed(0)
    linear, x = nn.Linear(6, 5).double(), torch.randn(3, 6).double()
    detour = Detour(linear, rank=2, alpha=8.0).double()
    nn.init.normal_(detour.outward)
    expected = linear(x) + 4.0 * (x @ detour.inward.T @ detour.outward.T)
    torch.testing.assert_close(detour(x), expected)
    torch.testing.assert_close(detour.merged()(x), expected)


def test_patterns_that_fit_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no linear map of this model matches \*attenshun\* \(train.lora_parts\)"):
        add_lora(tiny("gpt2"), 4, 8.0, ["*attenshun*"])
    with pytest.raises(ConfigError, match=r"no parameter of this model matches 'encoder\.\*' \(train.freeze\)"):
        freeze(tiny("gpt2"), ["embedding.*", "encoder.*"])


def test_freezing_by_patterns() -> None:
    model = tiny("bert")
    freeze(model, ["embedding.*", "encoder.0.*"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {n for n, _ in model.named_parameters() if n.startswith(("embedding.", "encoder.0."))}


def test_a_pattern_that_freezes_fits_beside_detours_too() -> None:
    for pattern in ("encoder.0.attention.query_key_value.weight", "encoder.0.*", "head.*"):
        model = tiny("bert")
        add_lora(model, 4, 8.0, PARTS)
        learnt = {n for n, p in model.named_parameters() if p.requires_grad}
        freeze(model, [pattern])
        left = {n for n, p in model.named_parameters() if p.requires_grad}
        assert learnt - left == {n for n in learnt if n.startswith(pattern.rstrip("*")) and pattern.endswith("*")}


# --- activation checkpointing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer", "t5", "vit"])
def test_computing_inner_values_again_changes_no_bit(name: str, dropout: float) -> None:
    def result(again: bool) -> list[torch.Tensor]:
        changes = {"dropout": dropout} if name != "llama" else {}
        model = tiny(name, dtype=torch.float32, **changes).train()
        if again:
            recompute_activations(model)
        torch.manual_seed(5)
        out = model(*inputs(name, dtype=torch.float32))
        out.square().mean().backward()
        slopes = [p.grad for p in model.parameters() if p.grad is not None]
        return [out.detach(), *slopes, torch.rand(3)]  # nor do the random numbers after it differ

    plain, again = result(False), result(True)
    assert len(plain) == len(again)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("name", READERS)
def test_without_gradients_nothing_is_kept_for_a_second_time(name: str) -> None:
    model: Model = tiny(name, dtype=torch.float32)
    with torch.no_grad():
        expected = model(some_ids(2, 7))
        recompute_activations(model)
        assert torch.equal(model(some_ids(2, 7)), expected)


@pytest.mark.parametrize("task", ["classify", "regress", "tag", "hidden", None])
@pytest.mark.parametrize("name", ALL)
def test_beside_detours_the_head_goes_on_learning_and_nothing_else_of_the_model(name: str, task: str | None) -> None:
    """A head that was drawn anew would stay as it was drawn."""
    if task is not None and task not in tiny(name).config.tasks:
        return
    changes = {} if task is None else {"task": task}
    model = tiny(name, **changes, **({"n_classes": 3} if task in ("classify", "tag") else {}))
    heads = {n for n, _ in model.named_parameters() if n.startswith("head.")}
    assert task not in ("classify", "regress", "tag") or heads
    add_lora(model, 4, 8.0, PARTS)
    learn = {n for n, p in model.named_parameters() if p.requires_grad}
    assert learn == heads | {n for n, _ in model.named_parameters() if n.endswith((".inward", ".outward"))}
