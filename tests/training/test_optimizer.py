"""Optimizers: torch's own to the last digit or nearly, decay where it belongs, and a memory that can be saved."""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, some_ids, tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import CheckpointError, ConfigError
from cutaway.model.model import Model
from cutaway.objectives import NextToken
from cutaway.training.feed import SCALE, StepBatch
from cutaway.training.loop import Run, loss_function, take_step
from cutaway.training.lora import add_lora
from cutaway.training.muon import Muon, orthogonalised
from cutaway.training.optimizer import Optimizer, clipping, gradient_length, in_a_block
from cutaway.training.recipe import OptimizerPart, TrainPart

GO = torch.zeros(())
KINDS = ["adamw", "adam", "muon"]


def pair(name: str = "gpt2") -> tuple[Model, Model]:
    return tiny(name, dtype=torch.float32), tiny(name, dtype=torch.float32)


def random_gradients(model: nn.Module, seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator) * scale


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def identical(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- beside torch's ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@settings(max_examples=10)
@given(rows=st.integers(2, 40), columns=st.integers(2, 40), n=st.integers(1, 3), seed=st.integers(0, 99))
def test_muon_is_torchs(exact: bool, rows: int, columns: int, n: int, seed: int) -> None:
    """Several matrices of one shape go through together; torch takes them one by one.

    Both make their updates orthogonal in bfloat16, where a sum in another order may round to the next number. With
    bfloat16 switched off in both, they are the same within 1e-6.
    """
    generator = torch.Generator().manual_seed(seed)
    ours = [nn.Parameter(torch.randn(rows, columns, generator=generator)) for _ in range(n)]
    theirs = [nn.Parameter(matrix.detach().clone()) for matrix in ours]
    muon = Muon([{"params": ours}], lr=0.02, momentum=0.95, weight_decay=0.1)
    torchs = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.1)
    with pytest.MonkeyPatch.context() as patch:
        if exact:
            patch.setattr(Tensor, "bfloat16", Tensor.clone)
        for _ in range(6):
            for a, b in zip(ours, theirs, strict=True):
                a.grad = torch.randn(rows, columns, generator=generator)
                b.grad = a.grad.clone()
            muon.step()
            torchs.step()
    largest = 0.02 * max(1, rows / columns) ** 0.5  # of an update
    tolerance = 1e-6 if exact else 6 * largest * 2**-7
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=0)
        torch.testing.assert_close(muon.state[a]["momentum"], torchs.state[b]["momentum_buffer"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("parts", [2, 3])
def test_muon_takes_a_matrix_that_is_several_apart(parts: int) -> None:
    torch.manual_seed(0)
    joined = nn.Parameter(torch.randn(8 * parts, 6))
    apart = [nn.Parameter(piece.detach().clone()) for piece in joined.chunk(parts)]
    together, alone = (Muon([group], lr=0.02) for group in ({"params": [joined], "parts": parts}, {"params": apart}))
    for _ in range(3):
        joined.grad = torch.randn_like(joined)
        for piece, grad in zip(apart, joined.grad.chunk(parts), strict=True):
            piece.grad = grad.clone()
        together.step()
        alone.step()
    torch.testing.assert_close(joined, torch.cat(list(apart)), atol=1e-6, rtol=0)


def test_an_update_of_muon_has_singular_values_near_one() -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(3, 20, 12), full_matrices=False)
    badly_scaled = u * torch.logspace(0, -2, 12) @ v
    found = orthogonalised(badly_scaled)
    strengths = torch.linalg.svdvals(found)
    assert ((strengths > 0.3) & (strengths < 1.4)).all()
    assert ((found * (u @ v)).sum((1, 2)) / 12 > 0.6).all()  # and points the way that UVᵀ does


def test_adam_is_that_of_2017() -> None:
    ours, theirs = pair()
    optimizer = Optimizer(ours, OptimizerPart(kind="adam", rate=1e-2))
    torchs = torch.optim.Adam(theirs.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    for step in range(6):
        for model in (ours, theirs):
            random_gradients(model, step)
        optimizer.step(GO)
        torchs.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_numbers_of_the_recipe_are_used() -> None:
    ours, theirs = pair()
    part = OptimizerPart(rate=1e-2, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.3)
    optimizer = Optimizer(ours, part)
    matrices, rest = ([p for p in theirs.parameters() if (p.ndim > 1) == m] for m in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]
    torchs = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.9), eps=1e-3)
    for step in range(4):
        for model in (ours, theirs):
            random_gradients(model, step)
        optimizer.step(GO)
        torchs.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


# --- what decays, what learns how fast --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "transformer", "t5", "vit"])
def test_matrices_decay_and_nothing_else_does(name: str, kind: str) -> None:
    """With a gradient of 0 a step is the decay alone: 1 − rate · 0.1."""
    model = tiny(name, dtype=torch.float32)
    before = weights(model)
    optimizer = Optimizer(model, OptimizerPart(kind=kind, rate=0.1, matrix_rate=0.2))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(GO)
    for parameter_name, parameter in model.named_parameters():
        rate = 0.2 if kind == "muon" and in_a_block(parameter_name, parameter) else 0.1
        kept = 1 - rate * 0.1 if parameter.ndim > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), before[parameter_name] * kept, msg=parameter_name)


@pytest.mark.parametrize("name", ALL)
def test_muon_is_for_the_matrices_of_blocks(name: str) -> None:
    model = tiny(name, dtype=torch.float32)
    chosen = [n for n, p in model.named_parameters() if in_a_block(n, p)]
    blocks = [n for n, p in model.named_parameters() if (p.ndim == 2 and ".0." in n) or (".1." in n and p.ndim == 2)]
    assert chosen == blocks
    assert not any("embedding" in n or n.startswith("head") for n in chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_layers_learn_slower(kind: str) -> None:
    """The head's step is whole, each layer below has half of the one above, whatever the optimizer."""

    def moved(layer_decay: float) -> dict[str, Tensor]:
        model = tiny("bert", dtype=torch.float32)
        before = weights(model)
        optimizer = Optimizer(model, OptimizerPart(kind=kind, rate=0.01, weight_decay=0.0, layer_decay=layer_decay))
        random_gradients(model, 0)
        optimizer.set_rate(0.5)
        optimizer.step(GO)
        return {name: weight - before[name] for name, weight in weights(model).items()}

    whole, slower = moved(1.0), moved(0.5)
    for name, way in whole.items():
        depth = {"embedding": 3, "encoder.0": 2, "encoder.1": 1, "head": 0}
        below = next(n for start, n in depth.items() if name.startswith(start))
        assert way.abs().max() > 1e-3
        torch.testing.assert_close(slower[name], way * 0.5**below, rtol=1e-3, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer"])
def test_muon_takes_a_detour_apart_as_the_matrix_beside_it_but_one_way_leads_in(name: str) -> None:
    """Queries, keys and values share the way into their detour; out of it each has rows of its own."""
    model = tiny(name, dtype=torch.float32)
    beside = parts_of(Optimizer(model, OptimizerPart(kind="muon")))
    add_lora(model, 6, 8.0, TrainPart().lora_parts)  # six rows could be taken for two or three matrices
    found = parts_of(Optimizer(model, OptimizerPart(kind="muon")))
    assert set(beside.values()) > {1}
    for place, n in found.items():
        matrix, _, way = place.rpartition(".")
        assert n == (1 if way == "inward" else beside[f"{matrix}.weight"]), place


def parts_of(optimizer: Optimizer) -> dict[str, int]:
    """Into how many parts Muon takes each of its matrices."""
    muon = next(one for one in optimizer.optimizers if isinstance(one, Muon))
    return {optimizer.names[p]: group["parts"] for group in muon.param_groups for p in group["params"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_is_a_share_of_the_highest(kind: str) -> None:
    model = tiny("gpt2", dtype=torch.float32)
    optimizer = Optimizer(model, OptimizerPart(kind=kind, rate=0.01, matrix_rate=0.2))

    def rates() -> set[float]:
        return {group["lr"] for one in optimizer.optimizers for group in one.param_groups}

    highest = rates()
    optimizer.set_rate(0.25)
    assert rates() == {0.25 * rate for rate in highest}
    optimizer.set_rate(1.0)
    assert rates() == highest


# --- clipping, skipping, remembering ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.001, 10.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_gradient_is_shortened(kind: str, scale: float) -> None:
    ours, theirs = pair()
    optimizers = [Optimizer(model, OptimizerPart(kind=kind, rate=1e-2, eps=1e-3)) for model in (ours, theirs)]
    for step in range(3):
        for model in (ours, theirs):
            random_gradients(model, step, scale)
        length = gradient_length(list(ours.parameters()))
        torch.testing.assert_close(length, nn.utils.clip_grad_norm_(theirs.parameters(), 1.0))
        assert (length > 1.0) == (scale == 10.0)
        optimizers[0].step(GO, clipping(length, 1.0))
        optimizers[1].step(GO)
    tolerance = 1e-4 if kind == "muon" else 1e-6  # a rounding to bfloat16 that tips over
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=0)
    assert clipping(length, 0.0) is None


def run_of(model: Model, kind: str, **more: Any) -> Run:
    objective = NextToken()
    return Run(model, objective, Optimizer(model, OptimizerPart(kind=kind)), loss_function(objective), **more)


def batch_of(step: int, scale: float = 1.0) -> StepBatch:
    ids = some_ids(2, 9, seed=step)
    part = {"ids": ids[:, :-1], "targets": ids[:, 1:], SCALE: torch.tensor([scale / 16])}
    return StepBatch(step, [part], {"next_token": 16}, 16, [step])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_a_finite_loss_changes_nothing(kind: str, after: int, bad: float) -> None:
    """Neither the weights nor a bit of what the optimizer remembers; the step after it goes as if it had not been."""
    runs = [run_of(model, kind) for model in pair()]
    for step in range(after):
        for run in runs:
            assert take_step(run, batch_of(step), 1.0).skip == 0
    skipped, other = runs
    before = weights(skipped.model), {name: t.clone() for name, t in skipped.optimizer.tensors().items()}
    assert take_step(skipped, batch_of(7, bad), 1.0).skip == 1
    assert identical(weights(skipped.model), before[0])
    assert identical(skipped.optimizer.tensors(), before[1]) or not after
    for run in runs:
        take_step(run, batch_of(after), 1.0)
    assert identical(weights(skipped.model), weights(other.model))
    assert identical(skipped.optimizer.tensors(), other.optimizer.tensors())


def test_a_spike_is_skipped_when_switched_on() -> None:
    run = run_of(tiny("gpt2", dtype=torch.float32), "adamw", spike=3.0)
    assert [take_step(run, batch_of(step), 1.0).skip.item() for step in range(3)] == [0, 0, 0]
    before, usual = weights(run.model), run.usual_loss
    assert take_step(run, batch_of(3, 100.0), 1.0).skip == 1
    assert identical(weights(run.model), before)
    assert run.usual_loss == usual
    assert take_step(run, batch_of(4), 1.0).skip == 0


def test_the_usual_loss_is_a_slow_average_of_those_that_count() -> None:
    """The first one, then 2 % of the way to each; a spike is more than so many times that, and moves nothing."""
    run = run_of(tiny("gpt2", dtype=torch.float32), "adamw", spike=2.0)
    usual: float | None = None
    for step, scale in enumerate((1.0, 1.5, 0.5, 1.0, 4.0, 1.9, 1.0)):
        result = take_step(run, batch_of(step, scale), 0.0)
        loss = result.terms.sum().item()
        skip = usual is not None and loss > 2.0 * usual
        assert result.skip.item() == skip == (scale == 4.0)
        usual = loss if usual is None else usual if skip else usual + 0.02 * (loss - usual)
        assert run.usual_loss is not None
        assert run.usual_loss.item() == pytest.approx(usual, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_remembers_can_be_put_back(kind: str, tmp_path: Path) -> None:
    run, other = (run_of(model, kind) for model in pair())
    for step in range(3):
        take_step(run, batch_of(step), 0.5)
    write_tensors(tmp_path / "optimizer.safetensors", run.optimizer.tensors())
    other.model.load_state_dict(run.model.state_dict())
    other.optimizer.load(open_tensors(tmp_path / "optimizer.safetensors"))
    assert identical(other.optimizer.tensors(), run.optimizer.tensors())
    for step in range(3, 6):
        for one in (run, other):
            take_step(one, batch_of(step), 0.5)
    assert identical(weights(other.model), weights(run.model))
    assert identical(other.optimizer.tensors(), run.optimizer.tensors())


def test_the_memory_of_another_model_is_refused(tmp_path: Path) -> None:
    run = run_of(tiny("gpt2", dtype=torch.float32), "adamw")
    take_step(run, batch_of(0), 1.0)
    write_tensors(tmp_path / "optimizer.safetensors", run.optimizer.tensors())
    smaller = Optimizer(tiny("gpt2", dtype=torch.float32, n_layers=1), OptimizerPart())
    with pytest.raises(CheckpointError, match=r"has state of 'decoder\.1\..*', which is not trained here"):
        smaller.load(open_tensors(tmp_path / "optimizer.safetensors"))


def test_frozen_parameters_are_left_alone() -> None:
    model = tiny("gpt2", dtype=torch.float32)
    model.embedding.requires_grad_(False)
    before = weights(model)
    run = run_of(model, "adamw")
    take_step(run, batch_of(0), 1.0)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {name for name in before if not name.startswith("embedding")}
    assert not any(name.startswith("embedding") for name in run.optimizer.tensors())
    with pytest.raises(ConfigError, match="nothing to train"):
        Optimizer(model.requires_grad_(False), OptimizerPart())


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (OptimizerPart(kind="sgd"), r"optimizer.kind='sgd' is not one of adamw, adam, muon"),
        (OptimizerPart(betas=(0.9,)), r"optimizer.betas=\[0.9\] must be two numbers"),
        (OptimizerPart(betas=(0.9, 1.0)), r"optimizer.betas=\[0.9, 1.0\] must be two numbers below 1"),
    ],
)
def test_what_it_does_not_know_is_refused(part: OptimizerPart, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Optimizer(tiny("gpt2"), part)


IN_PARTS = {"query_key_value": 3, "key_value": 2, "gate_up": 2}


@pytest.mark.parametrize("name", [*ALL, "lstm", "lstm-translator"])
def test_muon_takes_every_matrix_that_is_several_apart(name: str) -> None:
    """Queries, keys and values, and the two ways into a gated feed-forward: each is a matrix of its own."""
    found = parts_of(Optimizer(tiny(name, dtype=torch.float32), OptimizerPart(kind="muon")))
    assert found
    for place, n in found.items():
        joined = place.split(".")[-2]
        assert n == IN_PARTS.get(joined, 1), place
    joined = {place.split(".")[-2] for place in found} & set(IN_PARTS)
    if name in ("transformer", "t5"):
        assert {"query_key_value", "key_value"} <= joined
