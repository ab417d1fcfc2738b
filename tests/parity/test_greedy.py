"""Greedy decoding against `transformers.generate`, token for token."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.parity.generating_twins import LAST_NORM, gpt2, llama, marian, t5
from helpers.parity.padded_batches import SIDES, Side, padded
from helpers.parity.tiny_mistral import tiny as tiny_mistral
from helpers.parity.twins import Twins, draw, twins_of
from torch import Tensor
from transformers import (
    GenerationConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from cutaway.checkpoints import load
from cutaway.decoding import greedy, greedy_translate

N = 12


def mistral() -> PreTrainedModel:
    return MistralForCausalLM(tiny_mistral(window=4))


def twins_that_vary(model: Callable[[], PreTrainedModel], folder: Path) -> Twins:
    """With random weights a tied output repeats what it reads; with its last norm turned round it avoids that."""
    theirs = model().eval()
    draw(theirs)
    with torch.no_grad():
        theirs.get_submodule(LAST_NORM[model]).weight.neg_()
    theirs.save_pretrained(folder)
    return Twins(theirs, load(folder), folder)


def generated(twins: Twins, ids: Tensor, mask: Tensor, end_ids: list[int]) -> Tensor:
    """What their library writes, without what it was given."""
    start = twins.ours.config.start_id
    ends = end_ids or [53]  # beyond the vocabulary: never
    twins.theirs.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=N, eos_token_id=ends, pad_token_id=0, decoder_start_token_id=start
    )
    written = twins.theirs.generate(ids, attention_mask=mask)
    return written[:, 1:] if twins.theirs.config.is_encoder_decoder else written[:, ids.shape[1] :]


def an_end(written: Tensor) -> int:
    """A token that ends some rows early, at different places, and not all of them."""
    first, *_, last = [int(token) for token in written.flatten().unique() if 0 < (written == token).any(1).sum() < 3]
    return max(first, last, key=lambda token: int((written == token).any(1).sum()))


@pytest.mark.parametrize("model", [gpt2, llama, mistral])
@pytest.mark.parametrize("side", SIDES)
def test_prompts_of_different_lengths(tmp_path: Path, model, side: Side):
    twins = twins_of(model(), tmp_path)
    ours, theirs = padded([9, 17, 4], side, 53), padded([9, 17, 4], "left", 53)
    theirs.ids[theirs.real] = ours.ids[ours.real]  # theirs reads prompts that are padded on the left only
    written = generated(twins, theirs.ids, theirs.mask, [])
    assert written.shape == (3, N)
    assert len(written.unique()) > 5, "a text that only repeats itself shows nothing"
    assert torch.equal(greedy(twins.ours, ours.ids, n=N, real=ours.real, end_ids=()), written)
    end = an_end(written)
    expected = generated(twins, theirs.ids, theirs.mask, [end])
    assert not torch.equal(expected, written)
    assert torch.equal(greedy(twins.ours, ours.ids, n=N, real=ours.real, end_ids=[end]), expected)


@pytest.mark.parametrize("model", [marian, t5])
@pytest.mark.parametrize("side", SIDES)
def test_sources_of_different_lengths(tmp_path: Path, model, side: Side):
    twins = twins_that_vary(model, tmp_path)
    # Marian's peer counts positions from the left edge, padding included
    source = padded([9, 17, 4], "right" if model is marian else side, 53)
    written = generated(twins, source.ids, source.mask, [])
    assert written.shape == (3, N)
    assert len(written.unique()) > 5
    assert torch.equal(greedy_translate(twins.ours, source.ids, n=N, real=source.real, end_ids=()), written)
    end = an_end(written)
    expected = generated(twins, source.ids, source.mask, [end])
    assert not torch.equal(expected, written)
    assert torch.equal(greedy_translate(twins.ours, source.ids, n=N, real=source.real, end_ids=[end]), expected)
