"""Attribution: shares add up to the whole, padding and the future have none, and the model is left as it was."""

from collections.abc import Callable, Sequence
from math import exp
from typing import Any

import pytest
import torch
from helpers.linear_model import LinearModel
from helpers.tiny_models import DECODERS, ENCODERS, SIZES, TRANSLATORS, close, inputs, some_ids, tiny
from helpers.toy_recipes import still
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.inside.attribution.by_gradient import (
    RULES,
    WITHIN,
    IntegrationPath,
    even_change,
    gradient_x_input,
    integrated_gradients,
)
from cutaway.inside.attribution.gradients import Gradients
from cutaway.inside.attribution.reference_inputs import baseline_values
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.attribution.rollout import attention_parts, attention_rollout, projected_values, value_weighted
from cutaway.inside.patching.metrics import LogitDifference, Measure, last_real
from cutaway.model import tap
from cutaway.model.embeddings import Embedding
from cutaway.model.model import Model
from cutaway.model.precision import to_int8
from cutaway.model.tap import watch

FAMILIES = ["gpt2", "llama", "transformer", "transformer-pre-norm", "bert", "vit"]
TOOLS: dict[str, Callable[..., list[Attribution]]] = {
    "gradient_x_input": gradient_x_input,
    "integrated_gradients": lambda *given, **more: integrated_gradients(*given, steps=3, **more),
    "attention_rollout": lambda *given, metric, **more: attention_rollout(*given, **more),
    "value_weighted": lambda *given, metric, **more: attention_rollout(*given, weights="moved", **more),
}


def metric_for(name: str, place: int = -1) -> Measure:
    """Two outputs."""
    if name == "vit":
        return lambda logits: logits[:, 2:4]
    return lambda logits: logits[:, place, 2:4]


@pytest.mark.parametrize("baseline", ["zero", "mean"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "bert", "roformer", "vit"])
def test_integrated_gradients_add_up_to_what_the_input_did_that_the_baseline_does_not(name: str, baseline: str) -> None:
    model, given = still(name), inputs(name, batch=1)
    metric = metric_for(name)
    with torch.no_grad():
        total = metric(model(*given))
    for row, found in enumerate(integrated_gradients(model, *given, metric=metric, baseline=baseline, within=1e-3)):
        assert found.of_baseline is not None
        gap = (found.scores.sum(dim=-1) - (found.total - found.of_baseline)).abs().max()
        wanted = (found.total - found.of_baseline).abs().max()
        assert gap <= 1e-3 * wanted
        assert found.error == pytest.approx(float(gap / wanted), abs=1e-9)
        assert close(found.total, total[row])


@pytest.mark.parametrize("name", ["transformer-pre-norm", "t5"])
def test_from_other_words_they_add_up_to_the_difference_of_both_sentences(name: str) -> None:
    # smooth ones: with the large random weights of these models, a ReLU has a kink at every step
    model, (source, target) = tiny(name, activation="gelu"), inputs(name)
    others = (some_ids(2, 7, seed=8), some_ids(2, 6, seed=9))
    metric = LogitDifference(3, 4)
    found = integrated_gradients(model, source, target, metric=metric, baseline=others, within=1e-3)
    with torch.no_grad():
        whole = metric(model(source, target)) - metric(model(*others))
    for row, one in enumerate(found):
        assert one.scores.sum() == pytest.approx(float(whole[row]), rel=1e-3)


@pytest.mark.parametrize("at", ["patches", "output", "pixels"])
@pytest.mark.parametrize("baseline", ["zero", "black", "white", "mean"])
def test_of_a_picture_they_add_up_wherever_they_are_taken(at: str, baseline: str) -> None:
    (picture,) = inputs("vit", batch=1)
    asking: dict[str, Any] = {"metric": lambda scores: scores[:, 3], "at": at, "baseline": baseline}
    (found,) = integrated_gradients(still("vit"), picture, **asking, within=1e-3)
    assert found.error is not None
    assert found.error <= 1e-3
    (rough,) = integrated_gradients(still("vit"), picture, **asking)
    assert rough.error is not None
    assert rough.error <= WITHIN
    assert found.scores.shape == (1, {"patches": 4, "output": 5, "pixels": 64}[at])
    assert found.shape == {"patches": (2, 2), "output": None, "pixels": (8, 8)}[at]


class Jump(IntegrationPath):
    """A number that jumps from 0 to 1 on the way, and has no slope anywhere."""

    asked_for = 0

    def metrics(self, places: Sequence[float]) -> Tensor:
        Jump.asked_for += 1
        assert Jump.asked_for < 200, "the path is halved without end"
        return torch.tensor([[[float(place > 0.3)]] for place in places])

    def integral(self, nodes: Sequence[Any]) -> Tensor:
        return torch.zeros(len(nodes), 1, 1, 2)


def test_where_a_number_jumps_the_halving_ends() -> None:
    asked = Gradients(still("gpt2"), inputs("gpt2"), {}, metric_for("gpt2"))
    path = Jump(asked, [], [], 1, lambda more: None)
    scores, _ = path.halved_until(0.01, torch.zeros(1, 1), torch.ones(1, 1))
    assert not scores.any()


class Slope(IntegrationPath):
    """A number that rises by 1 on a short part of the way; its slope is shared among two inputs as 3 : 1."""

    def metrics(self, places: Sequence[float]) -> Tensor:
        return torch.tensor([[[1 / (1 + exp(-150 * (place - 0.3)))]] for place in places], dtype=torch.float64)

    def integral(self, nodes: Sequence[Any]) -> Tensor:
        risen = self.metrics([place for place, _ in nodes])[:, 0, 0]
        weights = torch.tensor([weight for _, weight in nodes], dtype=torch.float64)
        return (150 * risen * (1 - risen) * weights)[:, None, None, None] * torch.tensor([0.75, 0.25])


@pytest.mark.parametrize("n", [1, 4, 16])
def test_even_changes_cover_the_path_once_and_lie_where_the_number_changes(n: int) -> None:
    asked = Gradients(still("gpt2"), inputs("gpt2"), {}, metric_for("gpt2"))
    path = Slope(asked, [], [], 1, lambda more: None)
    nodes = even_change(path, n)
    assert sum(weight for _, weight in nodes) == pytest.approx(1)
    edge = 0.0
    for place, weight in nodes:  # each in the middle of its piece, piece after piece
        assert place - weight / 2 == pytest.approx(edge, abs=1e-12)
        edge = place + weight / 2
    if n == 16:
        assert sum(abs(place - 0.3) < 0.05 for place, _ in nodes) >= 12
        assert abs(float(path.integral(nodes).sum()) - 1) < 0.05
        equal = RULES["midpoint"](path, n)
        assert abs(float(path.integral(equal).sum()) - 1) > 0.3


class Flat(Slope):
    def metrics(self, places: Sequence[float]) -> Tensor:
        return torch.zeros(len(places), 2, 3)


def test_where_nothing_changes_the_pieces_are_equal() -> None:
    asked = Gradients(still("gpt2"), inputs("gpt2"), {}, metric_for("gpt2"))
    nodes = even_change(Flat(asked, [], [], 1, lambda more: None), 5)
    assert [weight for _, weight in nodes] == pytest.approx([0.2] * 5)


def test_where_no_word_is_missing_the_output_of_the_embedding_shares_as_the_tokens_do() -> None:
    """Positions stay where they are: what the tokens do not change, the sum with positions does not."""
    asking: dict[str, Any] = {"metric": metric_for("gpt2"), "baseline": "mean", "steps": 8}
    at_tokens, at_output = (
        integrated_gradients(still("gpt2"), *inputs("gpt2"), at=at, **asking)[0] for at in ("tokens", "output")
    )
    assert close(at_tokens.scores, at_output.scores)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 4, None])
def test_of_a_linear_model_both_gradients_say_the_same(rule: str, steps: int | None) -> None:
    model, ids = LinearModel().double().eval(), some_ids(2, 5)
    metric = metric_for("gpt2")
    ours = integrated_gradients(model, ids, metric=metric, steps=steps, rule=rule)
    plain = gradient_x_input(model, ids, metric=metric)
    for one, other in zip(ours, plain, strict=True):
        assert close(one.scores, other.scores)
        assert close(one.scores.sum(dim=-1), one.total)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "roformer"])
def test_padding_has_no_share_and_changes_none(name: str, tool: str, side: str) -> None:
    model, ids = still(name), some_ids(1, 5)
    padding = some_ids(1, 3, seed=4)
    parts = [padding, ids] if side == "left" else [ids, padding]
    real = torch.cat([torch.full_like(part, part is ids, dtype=torch.bool) for part in parts], dim=1)
    metric = LogitDifference(3, 4, at=last_real(real))
    (alone,) = TOOLS[tool](model, ids, metric=LogitDifference(3, 4))
    (padded,) = TOOLS[tool](model, torch.cat(parts, dim=1), metric=metric, real=real)
    scores = padded.scores if "gradient" in tool else padded.scores[real[0]]
    assert not scores[:, ~real[0]].any()
    assert close(scores[:, real[0]], alone.scores)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_padding_of_a_source_or_a_target_has_no_share(name: str, tool: str) -> None:
    model, (source, target) = still(name), inputs(name, batch=1)
    real = torch.tensor([[True] * 7 + [False] * 2]), torch.tensor([[True] * 6 + [False]])
    longer = torch.cat([source, some_ids(1, 2)], dim=1), torch.cat([target, some_ids(1, 1)], dim=1)
    (alone,) = TOOLS[tool](model, source, target, metric=LogitDifference(3, 4, at=5))
    (padded,) = TOOLS[tool](model, *longer, metric=LogitDifference(3, 4, at=5), source_real=real[0], real=real[1])
    both = torch.cat(real, dim=1)[0]
    scores = padded.scores if "gradient" in tool else padded.scores[real[1][0]]
    assert not scores[:, ~both].any()
    assert close(scores[:, both], alone.scores)
    assert (alone.parts, padded.parts) == ((7, 6), (9, 7))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_says_of_each_row_what_the_row_alone_says(name: str, tool: str) -> None:
    model, given = still(name), inputs(name, batch=3)
    together = TOOLS[tool](model, *given, metric=metric_for(name))
    for row, found in enumerate(together):
        (alone,) = TOOLS[tool](model, *(one[row : row + 1] for one in given), metric=metric_for(name))
        assert close(found.scores, alone.scores)
        assert close(found.total, alone.total)


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_how_many_steps_are_taken_at_a_time_changes_nothing(batch_tokens: int) -> None:
    asking: dict[str, Any] = {"metric": metric_for("gpt2"), "steps": 7}
    (usual, _), (ours, _) = (
        integrated_gradients(still("gpt2"), *inputs("gpt2"), **asking, **more)
        for more in ({}, {"batch_tokens": batch_tokens})
    )
    assert close(ours.scores, usual.scores)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", [*DECODERS, *TRANSLATORS])
def test_the_future_has_no_share(name: str, tool: str) -> None:
    given = inputs(name)
    for found in TOOLS[tool](still(name), *given, metric=metric_for(name, place=2)):
        before = given[0].shape[1] if name in TRANSLATORS else 0
        rows = found.scores if "gradient" in tool else found.scores[2:3]
        assert rows[:, : before + 3].any()
        assert not rows[:, before + 3 :].any()


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_looks_both_ways(name: str) -> None:
    assert attention_rollout(still(name), *inputs(name))[0].scores.all()


@pytest.mark.parametrize("options", [{}, {"heads": "max"}, {"weights": "moved"}, {"residual": 0.2}])
@pytest.mark.parametrize("name", SIZES)
def test_rows_of_a_rollout_sum_to_one(name: str, options: dict[str, Any]) -> None:
    for found in attention_rollout(still(name), *inputs(name), **options):
        assert close(found.total, torch.ones_like(found.total))
        assert close(found.scores.sum(dim=-1), found.total)
        assert (found.scores >= 0).all()


def test_a_rollout_is_the_product_of_what_each_block_mixes() -> None:
    one = tiny("gpt2", n_layers=1, n_heads=1)
    with watch(one, "decoder.0.attention.pattern") as seen:
        one(*inputs("gpt2"))
    half = (seen["decoder.0.attention.pattern"][:, 0] + torch.eye(7)) / 2
    assert close(torch.stack([found.scores for found in attention_rollout(one, *inputs("gpt2"))]), half)
    model = still("transformer")
    with watch(model, "*.pattern") as seen:
        model(*inputs("transformer"))
    a = {name.removesuffix(".pattern"): pattern.mean(dim=1) for name, pattern in seen.items()}
    eye = torch.eye(7)
    read = (a["encoder.1.attention"] + eye) / 2 @ ((a["encoder.0.attention"] + eye) / 2)
    selves = [(a[f"decoder.{layer}.attention"] + torch.eye(6)) / 2 for layer in range(2)]
    # a quarter of the way to the source is taken in the first block and mixed in the second, half of it in the second
    source = selves[1] @ (a["decoder.0.cross"] @ read / 2) / 2 + a["decoder.1.cross"] @ read / 2
    target = selves[1] @ selves[0] / 4
    ours = torch.stack([found.scores for found in attention_rollout(model, *inputs("transformer"))])
    assert close(ours, torch.cat([source, target], dim=-1))


@pytest.mark.parametrize("name", SIZES)
def test_what_is_moved_from_all_keys_is_what_the_attention_writes_without_its_bias(name: str) -> None:
    model, given = still(name), inputs(name)
    lengths = value_weighted(model, *given)
    parts = attention_parts(model)
    with watch(model, *[f"{part}.{end}" for part in parts for end in ("pattern", "value", "output")]) as seen:
        model(*given)
    for part, attention in parts.items():
        vectors = torch.einsum(
            "bhqk,bhkm->bhqkm", seen[f"{part}.pattern"], projected_values(attention, seen[f"{part}.value"])
        )
        bias = 0 if attention.output.bias is None else attention.output.bias
        assert close(vectors.sum(dim=(1, 3)), seen[f"{part}.output"] - bias)
        assert close(lengths.heads[part], vectors.norm(dim=-1))
        assert close(lengths.layers[part], vectors.sum(dim=1).norm(dim=-1))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_of_the_model_changes(name: str, tool: str) -> None:
    model = tiny(name)
    frozen = next(model.parameters()).requires_grad_(False)
    kept = next(p for p in model.parameters() if p is not frozen)
    kept.grad = torch.ones_like(kept)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    with torch.no_grad():
        found = TOOLS[tool](model, *inputs(name), metric=metric_for(name))
        assert not torch.is_grad_enabled()
    assert not found[0].scores.requires_grad
    assert torch.equal(torch.get_rng_state(), generator)
    assert not model.training
    assert tap._watchers == ()
    for parameter in model.parameters():
        assert parameter.requires_grad == (parameter is not frozen)
        assert (parameter.grad is None) == (parameter is not kept)
    assert torch.equal(kept.grad, torch.ones_like(kept))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_places_that_stay_get_nothing_and_the_others_all() -> None:
    keep = torch.tensor([[True, False, False, True, False, False, False]]).expand(2, -1)
    for found in integrated_gradients(still("gpt2"), *inputs("gpt2"), metric=metric_for("gpt2"), keep=keep):
        assert not found.scores[:, keep[0]].any()
        assert found.error is not None
        assert found.error <= WITHIN


class Wrapped(nn.Module):
    """As torch.compile wraps a model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._orig_mod = model


@pytest.mark.parametrize("tool", TOOLS)
def test_a_compiled_model_is_asked_uncompiled(tool: str) -> None:
    model = still("gpt2")
    (plain, _), (compiled, _) = (
        TOOLS[tool](one, *inputs("gpt2"), metric=metric_for("gpt2")) for one in (model, Wrapped(model))
    )
    assert torch.equal(plain.scores, compiled.scores)


def test_what_cannot_be_asked_is_refused_by_name() -> None:
    model, given, metric = still("gpt2"), inputs("gpt2"), metric_for("gpt2")
    with pytest.raises(InputError, match=r"8-bit.* precision='fp32'"):
        gradient_x_input(to_int8(tiny("gpt2", dtype=torch.float32)), *given, metric=metric)
    with pytest.raises(InputError, match=r"8-bit.* precision='fp32'"):
        value_weighted(to_int8(tiny("gpt2", dtype=torch.float32)), *given)
    with pytest.raises(InputError, match="Linear is not a model of this library"):
        gradient_x_input(nn.Linear(2, 2), *given, metric=metric)
    with pytest.raises(InputError, match=r"model\.eval"):
        attention_rollout(tiny("gpt2").train(), *given)
    with pytest.raises(InputError, match="'stepz' is neither an option"):
        integrated_gradients(model, *given, metric=metric, stepz=3)
    with pytest.raises(InputError, match="may be output, tokens"):
        gradient_x_input(model, *given, metric=metric, at="pixels")
    with pytest.raises(InputError, match="zero, pad, mean"):
        integrated_gradients(model, *given, metric=metric, baseline="black")
    with pytest.raises(InputError, match="pad_id"):
        integrated_gradients(model, *given, metric=metric, baseline="pad")
    with pytest.raises(InputError, match="one number for each row"):
        gradient_x_input(model, *given, metric=lambda logits: logits)
    with pytest.raises(InputError, match="no gradient"):
        gradient_x_input(model, *given, metric=lambda logits: logits[:, -1, 3].detach())
    with pytest.raises(InputError, match="must broadcast"):
        integrated_gradients(model, *given, metric=metric, baseline=torch.zeros(5))


# --- what an input is held against ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5", "bert"])
def test_a_baseline_of_tokens_is_what_the_embedding_makes_of_them(name: str) -> None:
    """Scaled as it scales them: the mean of all tokens is the mean of what each becomes."""
    model, given = tiny(name, pad_id=7), inputs(name)
    asked = Gradients(model, given, {}, metric_for(name))
    ends = asked.values()
    parts = [part for part in model.modules() if isinstance(part, Embedding)]
    parts = [part for part in asked.embeddings.values() if part in parts]
    others = tuple(x.flip(1) for x in given)
    with torch.no_grad():
        wanted: dict[Any, list[Tensor]] = {
            "zero": [torch.zeros_like(end) for end in ends],
            "mean": [part.tokens(torch.arange(50)[None]).mean(dim=1, keepdim=True).expand_as(end)
                     for part, end in zip(parts, ends, strict=True)],
            "pad": [part.tokens(torch.full_like(x, 7)) for part, x in zip(parts, given, strict=True)],
            11: [part.tokens(torch.full_like(x, 11)) for part, x in zip(parts, given, strict=True)],
        }  # fmt: skip
        for one, expected in wanted.items():
            for found, right in zip(baseline_values(asked, ends, one), expected, strict=True):
                assert close(found, right), one
        for found, part, x in zip(baseline_values(asked, ends, others), parts, others, strict=True):
            assert close(found, part.tokens(x))
        keep = tuple(torch.arange(x.shape[1]).expand(x.shape) % 2 == 0 for x in given)
        for found, end, where in zip(baseline_values(asked, ends, "zero", keep), ends, keep, strict=True):
            assert close(found, end * where[..., None])
