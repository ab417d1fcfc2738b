"""Paths: one by one they are what they say, and where all is linear they add up to the whole."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import TRANSLATORS, close, inputs, tiny
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.patching.activations import record_activations
from cutaway.inside.patching.interventions import Patch, Place, intervene
from cutaway.inside.patching.paths import patch_paths
from cutaway.model.tap import tap_names

FAMILIES = ["gpt2", "llama", "bert", "transformer", "transformer-pre-norm", "t5"]


def setting(name: str, **numbers: Any) -> tuple[Any, str, tuple[Tensor, ...], tuple[Tensor, ...]]:
    model, given = tiny(name, **numbers), inputs(name)
    side = "decoder" if hasattr(model, "decoder") else "encoder"
    return model, side, given, (*given[:-1], (given[-1] + 11) % 50)


@pytest.mark.parametrize("name", FAMILIES)
def test_in_the_last_block_the_direct_path_is_the_whole_effect(name: str) -> None:
    model, side, own, other = setting(name)
    sender = f"{side}.1.{'cross' if name in TRANSLATORS else 'attention'}.2"
    place = Place.of(sender)
    with torch.no_grad(), intervene(model, Patch(place, record_activations(model, *other, places=place))):
        outright = model(*own)
    assert close(patch_paths(model, own, other, sender), outright)
    assert not close(outright, model(*own))


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer-pre-norm", "t5"])
def test_with_held_norms_the_direct_path_is_the_formula(name: str) -> None:
    """Δlogits = (Δhead through the output matrix) · frozen final norm · de-embedding."""
    model, side, own, other = setting(name)
    direct = patch_paths(model, own, other, f"{side}.0.attention.1", feed_forward="held", norms="held")
    taps = [f"{side}.0.attention.heads", f"{side}.final_norm.scale"]
    before, after = (record_activations(model, *given, places=taps) for given in (own, other))
    moved = (after[taps[0]] - before[taps[0]])[:, 1]
    matrix = model.decoder[0].attention.output.weight.unflatten(1, (4, -1))[:, 1]
    written = moved @ matrix.T
    if hasattr(model.decoder.final_norm, "bias"):
        written = written - written.mean(dim=-1, keepdim=True)
    hidden = written * before[taps[1]] * model.decoder.final_norm.weight * model.head.scale
    with torch.no_grad():
        assert close(direct - model(*own), hidden @ model.head.matrix.T)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_where_all_else_is_held_the_paths_add_up_to_the_patch(name: str) -> None:
    """Frozen norms, patterns and feed-forwards leave sums and matrices: the direct path + those through values."""
    model, _, own, other = setting(name)
    sender = Place.of("decoder.0.attention.1")
    held = [tap for tap in tap_names(model) if tap.endswith(("norm.scale", "pattern", "feed_forward.output"))]
    kept = record_activations(model, *own, places=held)
    with torch.no_grad(), intervene(model, [Patch(Place(tap), kept) for tap in held]):
        plain = model(*own)
        with intervene(model, Patch(sender, record_activations(model, *other, places=sender))):
            outright = model(*own)
        words: dict[str, Any] = {"feed_forward": "held", "norms": "held"}
        ways = [patch_paths(model, own, other, sender, **words)]
        n_values = model.decoder[1].attention.n_kv_heads
        for head in range(n_values):
            ways.append(patch_paths(model, own, other, sender, Place("decoder.1.attention.value", heads=head), **words))
    assert close(sum(way - plain for way in ways), outright - plain)
    assert not close(ways[0] - plain, outright - plain)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sender_as_it_was_changes_nothing_and_does_not_reach_what_comes_before(name: str) -> None:
    model, side, own, other = setting(name)
    plain = model(*own)
    late, early = Place(f"{side}.1.attention.query", heads=1), f"{side}.0.attention.1"
    assert close(patch_paths(model, own, own, early, late), plain)
    assert close(patch_paths(model, own, other, f"{side}.1.attention.1", Place(f"{side}.0.attention.query")), plain)
    assert not close(patch_paths(model, own, other, early, late), plain)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_held_norms_are_held_behind_the_receivers_too(name: str) -> None:
    """The three runs one by one."""
    model, _, own, other = setting(name)
    sender, receiver = Place.of("decoder.0.attention.1"), Place("decoder.1.attention.value")
    heads = [tap for tap in tap_names(model) if tap.endswith("attention.heads")]
    scales = [tap for tap in tap_names(model) if tap.endswith("norm.scale")]
    kept = record_activations(model, *own, places=heads + scales)
    held = {tap: Patch(Place(tap), kept) for tap in heads + scales}
    with intervene(model, [*held.values(), Patch(sender, record_activations(model, *other, places=sender))]):
        arrived = record_activations(model, *own, places=receiver)
    with torch.no_grad(), intervene(model, [*(held[tap] for tap in scales), Patch(receiver, arrived)]):
        expected = model(*own)
    assert close(patch_paths(model, own, other, sender, receiver, norms="held"), expected)
    assert not close(patch_paths(model, own, other, sender, receiver), expected)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_feed_forwards_are_recomputed_or_held(name: str) -> None:
    model, _, own, other = setting(name)
    free, held = (
        patch_paths(model, own, other, "decoder.0.attention.1", feed_forward=how) for how in ("recomputed", "held")
    )
    assert not close(free, held)


def test_a_change_crosses_to_the_decoder_through_cross_attention_only() -> None:
    model, given = tiny("transformer"), inputs("transformer")
    other = ((given[0] + 11) % 50, given[1])
    sender = "encoder.0.attention.1"
    plain = model(*given)
    assert close(patch_paths(model, given, other, sender), plain)
    assert not close(patch_paths(model, given, other, sender, "decoder.*.cross.value"), plain)


def test_a_receiver_that_is_held_is_refused() -> None:
    model, _, own, other = setting("gpt2")
    with pytest.raises(InputError, match="is held while the change travels"):
        patch_paths(model, own, other, "decoder.0.attention.1", "decoder.1.attention.2")


def test_only_words_that_are_known() -> None:
    model, _, own, other = setting("gpt2")
    for words in ({"feed_forward": "hold"}, {"norms": "frozen"}):
        with pytest.raises(InputError, match="is neither recomputed nor held"):
            patch_paths(model, own, other, "decoder.0.attention.1", **words)
