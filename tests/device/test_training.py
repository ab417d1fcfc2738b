"""What training does in other ways on a GPU: short attention, a padded vocabulary, captured passes. See run.py."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from helpers.tiny_models import tiny
from torch import Tensor

from cutaway.model.attention import attention
from cutaway.model.dropout import Dropout
from cutaway.model.kernels.short_attention import attend_short, fits
from cutaway.model.masks import CAUSAL, EVERYWHERE, Mask
from cutaway.model.model import Model
from cutaway.model.tap import watch
from cutaway.objectives.loss import summed_cross_entropy
from cutaway.objectives.objective import Tensors
from cutaway.objectives.translation import Translation
from cutaway.training.compile import compile_blocks
from cutaway.training.cuda_graphs import Captured
from cutaway.training.feed import SCALE, StepBatch
from cutaway.training.loop import Run, add_gradient, loss_function, take_step
from cutaway.training.optimizer import Optimizer
from cutaway.training.recipe import OptimizerPart

GPU = "cuda"
LOSS_OF = loss_function(Translation(start_id=1, end_id=2))


def far(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-9)).item()


def test_short_attention_gives_the_formulas_numbers_and_gradients() -> None:
    torch.manual_seed(0)
    for n_query, n_key in ((1, 1), (5, 5), (12, 17), (16, 16), (33, 40), (48, 48), (64, 7), (64, 64)):
        for d_head in (16, 64):
            wide = torch.randn(3, n_query, 4 * d_head, device=GPU, dtype=torch.bfloat16)
            both = torch.randn(3, n_key, 8 * d_head, device=GPU, dtype=torch.bfloat16)
            query = wide.unflatten(-1, (4, d_head)).transpose(1, 2)
            key, value = (x.unflatten(-1, (4, d_head)).transpose(1, 2) for x in both.chunk(2, dim=-1))
            assert fits(query, key, value)
            real = torch.arange(n_key, device=GPU) < torch.tensor([[0], [max(1, n_key - 3)], [n_key]], device=GPU)
            masks = [EVERYWHERE, Mask(real[:, None, None]), Mask(torch.rand(3, 1, n_query, n_key, device=GPU) < 0.5)]
            for mask in masks + ([CAUSAL] if n_query == n_key else []):
                short = [x.detach().requires_grad_() for x in (query, key, value)]
                exact = [x.detach().double().requires_grad_() for x in (query, key, value)]
                found = attend_short(*short, mask.may_look, causal=mask.causal, scale=None)
                expected = attention(*exact, mask)
                grad = torch.randn_like(found)
                gradients = torch.autograd.grad(found, short, grad)
                expected_gradients = torch.autograd.grad(expected, exact, grad.double())
                for ours, theirs in zip((found, *gradients), (expected, *expected_gradients), strict=True):
                    assert far(ours, theirs) < 1e-2, (n_query, n_key, d_head, mask.causal, far(ours, theirs))
                if mask.may_look is masks[1].may_look:
                    assert (found[0] == 0).all()
                    assert (gradients[1][0] == 0).all()


def test_a_padded_vocabulary_changes_no_loss_and_no_gradient() -> None:
    torch.manual_seed(0)
    for n, at_once in ((300, None), (300, 100)):
        hidden = torch.randn(n, 64, device=GPU, dtype=torch.bfloat16, requires_grad=True)
        matrix = torch.randn(1001, 64, device=GPU, requires_grad=True)
        targets = torch.randint(0, 1001, (n,), device=GPU)
        targets[:7] = -100
        exact = [x.detach().double().requires_grad_() for x in (hidden, matrix.to(torch.bfloat16))]
        expected = F.cross_entropy(exact[0] @ exact[1].T, targets, reduction="sum", label_smoothing=0.1)
        wanted = torch.autograd.grad(expected * 0.01, exact)
        for way in (summed_cross_entropy, torch.compile(summed_cross_entropy)):
            found = way(hidden, matrix, targets, smoothing=0.1, at_once=at_once)
            gradients = torch.autograd.grad(found * 0.01, (hidden, matrix))
            assert far(found, expected) < 1e-2
            for ours, theirs in zip(gradients, wanted, strict=True):
                assert far(ours, theirs) < 2e-2, (at_once, far(ours, theirs))


def part_of(batch: int, source: int, target: int, seed: int) -> Tensors:
    random = torch.Generator().manual_seed(seed)
    real = torch.arange(source) < torch.randint(1, source + 1, (batch, 1), generator=random)
    part = {
        "source": torch.randint(3, 20, (batch, source), generator=random),
        "source_real": real,
        "ids": torch.randint(3, 20, (batch, target), generator=random),
        "targets": torch.randint(3, 20, (batch, target), generator=random),
        SCALE: torch.tensor([1 / (batch * target)]),
    }
    return {name: tensor.to(GPU) for name, tensor in part.items()}


def translator(dropout: float) -> Model:
    return tiny("transformer", dtype=torch.float32, d_model=64, dropout=dropout).to(GPU).train()


def gradient_of(model: Model) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_compiled_dropout_drops_its_share_and_the_gradient_is_dropped_alike() -> None:
    part = torch.compile(Dropout(0.3))
    kept = []
    for _ in range(2):
        x = torch.ones(512, 1000, device=GPU, requires_grad=True)
        dropped = part(x)
        dropped.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, dropped.detach())
        kept.append(dropped != 0)
        assert abs(kept[-1].float().mean().item() - 0.7) < 0.005
        assert torch.allclose(dropped[kept[-1]], torch.tensor(1 / 0.7, device=GPU))
    assert abs((kept[0] & kept[1]).float().mean().item() - 0.49) < 0.005


def test_captured_passes_give_the_same_terms_and_gradients_for_several_shapes_and_parts() -> None:
    for compiles in (False, True):
        model, loss_of = translator(0.0), LOSS_OF
        if compiles:
            compile_blocks(model)
        captured = Captured(model, loss_of, torch.bfloat16)
        a, b = [part_of(8, 9, 12, seed) for seed in range(5)], [part_of(4, 16, 7, seed) for seed in range(5)]
        for parts in ([a[0]], [b[0]], [a[1]], [b[1]], [a[2], a[3]], [b[2], a[2], b[3]], [a[4]]):
            model.zero_grad()
            expected_terms = sum(add_gradient(model, loss_of, torch.bfloat16, part) for part in parts)
            expected = gradient_of(model)
            model.zero_grad()
            terms = sum(captured(part).clone() for part in parts)
            assert far(terms, expected_terms) < 1e-3
            assert far(gradient_of(model), expected) < 1e-3, far(gradient_of(model), expected)
        assert len(captured.recordings) == 2


def test_captured_dropout_differs_from_step_to_step_and_follows_the_random_state() -> None:
    for compiles in (False, True):
        model, part, loss_of = translator(0.5), part_of(8, 9, 12, 0), LOSS_OF
        if compiles:
            compile_blocks(model)
        captured = Captured(model, loss_of, torch.bfloat16)
        add_gradient(model, loss_of, torch.bfloat16, part)
        start = torch.cuda.get_rng_state()
        plain = [add_gradient(model, loss_of, torch.bfloat16, part).item() for _ in range(4)]
        torch.cuda.set_rng_state(start)
        first = [captured(part).item() for _ in range(4)]  # the first as always, then recorded, then replayed
        torch.cuda.set_rng_state(start)
        again = [captured(part).item() for _ in range(4)]
        assert len(set(first)) == 4
        assert first == again, (first, again)
        assert max(abs(a - b) for a, b in zip(first, plain, strict=True)) < 1e-4, (first, plain)


def test_a_captured_run_learns_as_an_uncaptured_one_and_a_watched_step_is_seen() -> None:
    weights = []
    for captures in (False, True):
        model = translator(0.1)
        torch.manual_seed(0)
        run = Run(model, Translation(start_id=1, end_id=2), Optimizer(model, OptimizerPart()), LOSS_OF)
        run.autocast = torch.bfloat16
        if captures:
            run.captured = Captured(model, LOSS_OF, torch.bfloat16)
        batch = StepBatch(0, [part_of(8, 9, 12, 0)], {"translation": 96}, 168, [])
        for step in range(6):
            parts = [part_of(8, 9, 12, step)]
            take_step(run, replace(batch, parts=parts), 1.0)
        with watch(model, "decoder.*.cross.pattern") as seen:
            take_step(run, batch, 1.0)
        assert len(seen) == 2
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert far(weights[1], weights[0]) < 1e-3, far(weights[1], weights[0])
