"""Beam search against `transformers.generate`: the same texts and the same scores."""

import itertools
from pathlib import Path

import pytest
import torch
from helpers.decode_batches import beams, continuations
from helpers.parity.beam_twins import N, ends_of, generated, trimmed, twins_that_hesitate
from helpers.parity.generating_twins import gpt2, llama, marian, t5
from helpers.parity.padded_batches import padded

RULES = list(itertools.product([2, 4], [0.0, 0.6, 1.0, 2.0, -0.5], [False, True, "never"]))


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
