"""A sweep of ablations: each cell is one run with that place taken away."""

from itertools import product

import pytest
import torch
from helpers.tiny_models import close, inputs, tiny

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit, minimality
from cutaway.inside.circuits.circuit_task import circuit_task
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.activations import mean_activations, record_activations
from cutaway.inside.patching.interventions import Ablate, Patch, intervene
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.place import Place
from cutaway.inside.patching.sweep import patch_sweep

FAMILIES = ["gpt2", "llama", "transformer", "transformer-pre-norm", "t5", "bert", "vit"]
METRIC = LogitDifference(1, 2)


@pytest.mark.parametrize("over", ["residual", "heads", "feed_forward"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_cell_is_one_run_without_the_place(name: str, over: str) -> None:
    model, given = tiny(name), inputs(name)
    found = ablate_sweep(model, *given, metric=METRIC, over=over, rows=3)
    assert close(found.clean, METRIC(model(*given)))
    heads, positions = found.heads or (None,), found.positions or (None,)
    for layer, (i, position), (j, head) in product(found.layers, enumerate(positions), enumerate(heads)):
        place = Place(found.tap.replace("*", str(layer)), head, position)
        with intervene(model, Ablate(place)):
            expected = METRIC(model(*given))
        cell = found.values[layer, j if over == "heads" else i]
        assert close(cell, expected), (layer, position, head)
        effect = found.effects[layer, j if over == "heads" else i]
        assert close(effect, (found.clean - expected).mean())  # above 0: the metric falls without it


@torch.no_grad()
def test_a_mean_is_that_of_the_run_and_a_resample_the_other_runs() -> None:
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    one, other = ids[:1], ids[1:]
    tap = "decoder.1.attention.heads"
    place = Place(tap, 2)
    found = ablate_sweep(model, one, metric=METRIC, over="heads", how="mean")
    with intervene(model, Ablate(place, "mean", mean_activations(model, one, places=[tap]))):
        assert close(found.values[1, 2], METRIC(model(one)))
    found = ablate_sweep(model, one, metric=METRIC, over="heads", how="resample", source=other)
    with intervene(model, Patch(place, record_activations(model, other, places=[tap]))):
        assert close(found.values[1, 2], METRIC(model(one)))
    assert found.to_dict()["how"] == "resample"


@torch.no_grad()
def test_padding_is_no_part_of_a_mean_and_a_pattern_has_none() -> None:
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    metric = LogitDifference(1, 2, at=4)
    real = torch.arange(7)[None] < 5
    for over in ("heads", "residual"):
        padded = ablate_sweep(model, ids[:1], metric=metric, over=over, how="mean", real=real)
        alone = ablate_sweep(model, ids[:1, :5], metric=metric, over=over, how="mean")
        assert close(padded.values[:, : alone.values.shape[1]], alone.values)
    with pytest.raises(InputError, match="has no mean over positions"):
        ablate_sweep(model, ids[:1], metric=metric, over="attention.pattern", how="mean")


def test_the_mean_of_one_position_takes_nothing_away() -> None:
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    first = LogitDifference(1, 2, at=0)
    for wishes in ({}, {"over": "heads"}):
        with pytest.raises(InputError, match="has 1 position, and the mean of one is its own value"):
            ablate_sweep(model, ids[:1, :1], metric=METRIC, how="mean", **wishes)
        with pytest.raises(InputError, match="has 1 position"):
            ablate_sweep(model, ids[:1], metric=first, how="mean", real=torch.arange(7)[None] < 1, **wishes)
        for some in (ids[:2, :1], ids[:1, :2]):
            assert ablate_sweep(model, some, metric=first, how="mean", **wishes).effects.abs().max() > 0
    translator, (source, target) = tiny("transformer"), inputs("transformer")
    one = target[:1, :1]
    with pytest.raises(InputError, match=r"'decoder\.0\.cross\.heads' has 1 position"):
        ablate_sweep(translator, source[:1], one, metric=METRIC, how="mean", over="cross_heads")
    assert ablate_sweep(translator, source[:1], one, metric=METRIC, how="mean", side="encoder").effects.any()


def test_the_encoder_of_a_translator_has_its_own_side() -> None:
    model = tiny("transformer")
    given = tuple(x[:1] for x in inputs("transformer"))
    found = ablate_sweep(model, *given, metric=METRIC, side="encoder", layers=[1])
    assert found.tap == "encoder.*.residual_before"
    assert found.effects.shape == (1, 7)


def test_wrong_wishes_are_refused() -> None:
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    for wishes, said in (({"how": "gone"}, "is not one of"), ({"how": "resample"}, "takes values from another run")):
        with pytest.raises(InputError, match=said):
            ablate_sweep(model, ids[:1], metric=METRIC, **wishes)


@torch.no_grad()
def test_needed_has_one_sign_everywhere() -> None:
    """A model in which one head alone speaks for the answer: whoever is asked, its effect is above 0."""
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    other, head = (ids + 7) % 50, "decoder.1.attention.2"
    for layer, block in enumerate(model.decoder):  # type: ignore[arg-type, var-annotated]
        each = block.attention.output.weight.data.view(24, 4, 6)
        each[:, [number for number in range(4) if (layer, number) != (1, 2)]] = 0
    here, there = METRIC(model(ids)).mean(), METRIC(model(other)).mean()
    metric = METRIC if here > there else LogitDifference(2, 1)
    asked = circuit_task(model, ids, metric=metric, reference=other, how="resample")
    lost = asked.effects([head])[head]
    assert lost > 0
    assert asked.estimates()[head] * lost > 0
    gone = ablate_sweep(model, ids, metric=metric, how="resample", source=other, over="heads")
    assert gone.effects[1, 2].item() == pytest.approx(lost)
    assert patch_sweep(model, ids, other, metric, over="heads").effects[1, 2] > 0
    circuit = Circuit.of(model, "one", [head])
    assert minimality(asked, circuit)[head] > 0
