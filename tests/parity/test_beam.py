"""Beam search against `transformers.generate`: the same texts and the same scores."""

import itertools
from pathlib import Path

import pytest
import torch
from helpers.decode_batches import beams, continuations
from helpers.parity.padded_batches import padded
from helpers.parity.twins import Twins, draw, twins_of
from parity.test_greedy import LAST_NORM, gpt2, llama, marian, t5
from torch import Tensor
from transformers import GenerationConfig

from cutaway.checkpoints import load

N = 12
RULES = list(itertools.product([2, 4], [0.0, 0.6, 1.0, 2.0, -0.5], [False, True, "never"]))


def twins_that_hesitate(model, folder: Path) -> Twins:
    """As the tests of greedy decoding have them, and with scores so close that beams overtake each other."""
    if model in LAST_NORM:
        theirs = model().eval()
        draw(theirs)
        with torch.no_grad():
            theirs.get_submodule(LAST_NORM[model]).weight.mul_(-0.3)
        theirs.save_pretrained(folder)
        return Twins(theirs, load(folder), folder)
    return twins_of(model(), folder)


def generated(twins: Twins, ids: Tensor, mask: Tensor, ends: list[int], beam: int, penalty: float, stop: bool | str):
    """What their library finds, without what it was given, and its scores; everything, the best first."""
    twins.theirs.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=N,
        num_beams=beam,
        num_return_sequences=beam,
        length_penalty=penalty,
        early_stopping=stop,
        eos_token_id=ends,
        pad_token_id=0,
        decoder_start_token_id=twins.ours.config.start_id,
    )
    found = twins.theirs.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True)
    read = 1 if twins.theirs.config.is_encoder_decoder else ids.shape[1]
    return found.sequences[:, read:], found.get("sequences_scores")


def trimmed(row: list[int], ends: list[int]) -> list[int]:
    """Up to the end, which stays."""
    return row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))]


def ends_of(twins: Twins, ids: Tensor, mask: Tensor) -> list[int]:
    """Two tokens that about half of all texts hold, so that some end early and some late."""
    free, _ = generated(twins, ids, mask, [53], 4, 1.0, False)
    share = {int(token): (free == token).any(dim=1).float().mean().item() for token in free.unique()}
    return sorted(share, key=lambda token: abs(share[token] - 0.5))[:2]


@pytest.mark.parametrize("model", [marian, t5])
def test_translations_and_their_scores(tmp_path: Path, model):
    twins, source = twins_that_hesitate(model, tmp_path), padded([9, 17, 4, 12], "right", 53)
    ends = ends_of(twins, source.ids, source.mask)
    seen = set()
    rules = RULES if model is marian else RULES[::4]
    for (beam, penalty, stop), closed in itertools.product(rules, (ends, ends[:1], [])):
        theirs, their_scores = generated(twins, source.ids, source.mask, closed or [53], beam, penalty, stop)
        ours = beams(
            twins.ours,
            source.ids,
            n=N,
            beam=beam,
            length_penalty=penalty,
            early_stopping=stop,
            real=source.real,
            start=twins.ours.config.start_id,
            end_ids=closed,
        )
        found = [hypothesis for row in ours for hypothesis in row]
        expected = [trimmed(row, closed) for row in theirs.tolist()]
        assert [hypothesis.ids for hypothesis in found] == expected, (beam, penalty, stop, closed)
        assert torch.allclose(torch.tensor([h.score for h in found]), their_scores, rtol=1e-4, atol=1e-5)
        seen.add(tuple(map(tuple, expected[::beam])))
    assert len(seen) > 8, "the rules have to matter"


@pytest.mark.parametrize("model", [gpt2, llama])
def test_continuations(tmp_path: Path, model):
    twins = twins_that_hesitate(model, tmp_path)
    prompts = padded([9, 17, 4], "left", 53)
    ends = ends_of(twins, prompts.ids, prompts.mask)
    seen = set()
    for beam, penalty, stop in RULES[::2]:
        theirs, _ = generated(twins, prompts.ids, prompts.mask, ends, beam, penalty, stop)
        ours = continuations(
            twins.ours,
            prompts.ids,
            n=N,
            beam=beam,
            length_penalty=penalty,
            early_stopping=stop,
            real=prompts.real,
            end_ids=ends,
        )
        expected = [trimmed(row, ends) for row in theirs[::beam].tolist()]
        assert ours == expected, (beam, penalty, stop)
        seen.add(tuple(map(tuple, expected)))
    assert len(seen) > 2, "the rules have to matter"
