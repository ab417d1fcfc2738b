"""Greedy decoding by itself: what it refuses, and that rows do not disturb each other."""

import pytest
import torch
from helpers.tiny_models import DECODERS, TRANSLATORS, some_ids, tiny

from cutaway.decoding import greedy, greedy_translate
from cutaway.errors import InputError
from cutaway.families import build
from cutaway.families.gpt2 import GPT2Config
from cutaway.families.transformer import TransformerConfig
from cutaway.model.model import Model

NUMBERS = {"vocab_size": 31, "max_len": 20, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.5, "tied": False}


def decoder(**changes: object) -> Model:
    model = build(GPT2Config(n_layers=2, **NUMBERS).with_(**changes), seed=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # far from the beginning's near-ties
    return model


def translator(**changes: object) -> Model:
    return build(TransformerConfig(n_encoder_layers=1, n_decoder_layers=1, **NUMBERS).with_(**changes), seed=0).eval()


def test_each_token_is_the_likeliest_after_all_before_it():
    model, ids = decoder(), torch.randint(31, (2, 5))
    for _ in range(8):
        new = model(ids)[:, -1:].argmax(dim=-1)
        ids = torch.cat([ids, new], dim=1)
    assert torch.equal(greedy(model, ids[:, :5], n=8), ids[:, 5:])


def test_a_row_is_written_alone_as_in_any_batch():
    model, ids = decoder(), torch.randint(31, (3, 6))
    real = torch.tensor([[True] * 6, [False] * 4 + [True] * 2, [True] * 3 + [False] * 3])
    together = greedy(model, ids, n=10, real=real)
    for row in range(3):
        alone = greedy(model, ids[row, real[row]][None], n=10)
        assert torch.equal(together[row], alone[0])


def test_behind_its_end_a_row_is_padded_and_the_last_end_stops():
    model, ids = decoder(pad_id=0), torch.randint(31, (4, 5))
    free = greedy(model, ids, n=10)
    ends = [int(row[3]) for row in free]
    written = greedy(model, ids, n=10, end_ids=ends)
    assert written.shape[1] <= 4
    for row, before in zip(written, free, strict=True):
        n = next(i for i, token in enumerate(before.tolist()) if token in ends) + 1
        assert torch.equal(row[:n], before[:n])
        assert (row[n:] == 0).all()


def test_the_models_own_ends_count_unless_others_are_given():
    ids = torch.randint(31, (1, 5))
    free = greedy(decoder(), ids, n=6)
    end = int(free[0, 2])
    n = free[0].tolist().index(end) + 1
    assert greedy(decoder(end_ids=[end]), ids, n=6).shape == (1, n)
    assert greedy(decoder(end_ids=[end]), ids, n=6, end_ids=()).shape == (1, 6)


def test_the_limit_is_the_models_length():
    model = decoder()
    assert greedy(model, torch.randint(31, (1, 5)), n=16).shape == (1, 16)  # the last token is written, never read
    with pytest.raises(InputError, match="at most n=16 more fit into max_len=20"):
        greedy(model, torch.randint(31, (1, 5)), n=17)


def test_what_cannot_be_written_is_refused():
    ids = torch.randint(31, (1, 5))
    with pytest.raises(InputError, match="n=0"):
        greedy(decoder(), ids, n=0)
    with pytest.raises(InputError, match="task='hidden'"):
        greedy(decoder(task="hidden"), ids, n=2)
    with pytest.raises(InputError, match="use greedy_translate"):
        greedy(translator(), ids, n=2)
    with pytest.raises(InputError, match="give `start_id`"):
        greedy_translate(translator(), ids, n=2)
    assert greedy_translate(translator(), ids, n=2, start_id=1).shape == (1, 2)
    with pytest.raises(InputError, match="text 2 has an empty prompt"):
        greedy(decoder(), torch.randint(31, (2, 3)), n=2, real=torch.tensor([[True] * 3, [False] * 3]))
    assert greedy(decoder(), ids[:0], n=2).shape == (0, 0)


def test_a_start_token_that_is_given_is_taken_whatever_its_number():
    ids = torch.randint(31, (4, 5))
    first = [greedy_translate(translator(start_id=start), ids, n=4) for start in (0, 1)]
    assert not torch.equal(*first)
    for start, expected in enumerate(first):
        assert torch.equal(greedy_translate(translator(start_id=1 - start), ids, n=4, start_id=start), expected)


@pytest.mark.parametrize("name", [*DECODERS, *TRANSLATORS])
def test_a_model_learns_on_after_it_has_written(name):
    """As a run does that shows samples: the engine leaves nothing behind that gradients cannot pass."""
    model, ids = tiny(name, start_id=1), some_ids(2, 5)
    if name in TRANSLATORS:
        greedy_translate(model, ids, n=3)
        model.train()(ids, ids).sum().backward()
    else:
        greedy(model, ids, n=3)
        model.train()(ids).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
