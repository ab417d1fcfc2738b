"""A compiled model is looked into as it is: its wrapper says of itself neither that it translates nor what it has."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import inputs, tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator

from cutaway import inspect
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep

METRIC = LogitDifference(1, 2)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_translator_is_swept_as_it_is(side: str) -> None:
    """Taken for no translator, its head would read the encoder's states."""
    model, clean = tiny("transformer"), inputs("transformer")
    corrupted = tuple((x + 7) % 50 for x in clean)
    compiled: Any = torch.compile(model, backend="eager")
    plain = patch_sweep(model, clean, corrupted, METRIC, side=side)
    assert torch.equal(patch_sweep(compiled, clean, corrupted, METRIC, side=side).values, plain.values)
    words: dict[str, Any] = {"metric": METRIC, "side": side, "over": "heads"}
    assert torch.equal(ablate_sweep(compiled, *clean, **words).values, ablate_sweep(model, *clean, **words).values)


def test_a_translator_is_asked_and_aligned_as_it_is() -> None:
    model, tokenizer = translator(), byte_level()
    compiled: Any = torch.compile(model, backend="eager")
    texts = ["We met Anna in 1984."]
    found, expected = (alignment_heads(it, tokenizer, texts, texts, effects=False) for it in (compiled, model))
    assert found.copies.scores == expected.copies.scores
    told, said = (inspect(it, tokenizer, "Hi", show=["writers"]) for it in (compiled, model))
    assert (told.question, told.answer) == ("translation", said.answer)
