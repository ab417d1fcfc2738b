"""Perplexity: every token once, with enough of its past, and nothing but speed depends on how it is read."""

import math

import numpy as np
import pytest
import torch
from helpers.tiny_models import DECODERS, VOCAB, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import cutaway.evaluation.perplexity as module
from cutaway.errors import InputError
from cutaway.evaluation.perplexity import bits_per_byte, perplexity, surprisal, windows_of
from cutaway.families.gpt2 import GPT2Config
from cutaway.model.model import DecoderModel

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=4)


class Known(DecoderModel):
    """Gives every token a probability that depends on itself and on how much of its past is in sight.

    Token t after a past of k in sight costs weight(t) + 1/k nats, whatever that past is; the rest of the probability
    lies on a token that never comes. What it was asked is kept."""

    def __init__(self, vocab_size: int = VOCAB) -> None:
        super().__init__(GPT2Config(vocab_size=vocab_size + 1, max_len=64, d_model=2, n_heads=1, n_layers=1))
        self.max_len = 64
        self.weight = torch.nn.Parameter(torch.linspace(0.1, 2.0, vocab_size, dtype=torch.float64))
        self.head = Costs(self.weight)
        self.n_rows: list[int] = []

    def hidden(self, ids: Tensor, *, real: Tensor | None = None) -> Tensor:
        self.n_rows.append(len(ids))
        past = torch.arange(1, ids.shape[1] + 1, dtype=torch.float64).expand(ids.shape)
        return torch.stack([past, torch.zeros_like(past)], dim=-1)


class Costs(torch.nn.Module):
    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.weights = (weight,)

    def forward(self, hidden: Tensor) -> Tensor:
        # shares are made small, so that all of them fit into one probability
        costs = self.weights[0] + 1 / hidden[:, :1] + math.log(4 * len(self.weights[0]))
        rest = torch.log1p(-torch.exp(-costs).sum(dim=1, keepdim=True))
        return torch.cat([-costs, rest], dim=1)


def known_cost(model: Known, token: int, past: int) -> float:
    return model.weight[token].item() + 1 / past + math.log(4 * VOCAB)


def documents_of(lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, VOCAB, n).tolist() for n in lengths]


def log_probability(model: DecoderModel, ids: list[int]) -> float:
    """The plain sum: one pass over everything."""
    row = torch.tensor([ids])
    scores = model(row).double().log_softmax(dim=-1)
    return scores[0, :-1].gather(1, row[0, 1:, None]).sum().item()


# --- windows ----------------------------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(1, 12), st.data())
def test_every_token_is_scored_once_with_enough_of_its_past(lengths, context, data):
    stride = data.draw(st.integers(1, context))
    texts = [np.arange(n) + 1000 * i for i, n in enumerate(lengths)]  # every token another one
    scored = []
    for window in windows_of(texts, context, stride):
        assert len(window.ids) - 1 <= context, "more is read than the context"
        assert 1 <= window.scored < len(window.ids)
        assert (window.ids // 1000 == window.document).all(), "a window crosses the border of a document"
        for place in range(len(window.ids) - window.scored, len(window.ids)):
            token, past = window.ids[place] % 1000, place
            assert past >= min(token, context - stride + 1)
            scored.append(int(window.ids[place]))
    assert scored == [token for text in texts for token in text[1:].tolist()]


@given(LENGTHS.filter(lambda lengths: max(lengths) > 1), st.integers(1, 12), st.data())
def test_known_probabilities_add_up(lengths, context, data):
    stride, batch = data.draw(st.integers(1, context)), data.draw(st.integers(1, 5))
    model, texts = Known().eval(), documents_of(lengths)
    found = surprisal(model, texts, context=context, stride=stride, batch=batch)
    expected = 0.0
    for text in texts:
        for place in range(1, len(text)):
            late = max(0, place - context)  # scored by the first window that reaches it
            past = place - -(-late // stride) * stride
            expected += known_cost(model, text[place], past)
    assert found.total == pytest.approx(expected, rel=1e-12)
    assert found.n_tokens == sum(max(0, n - 1) for n in lengths)
    assert max(model.n_rows) <= batch


def test_the_first_token_is_scored_only_after_a_start():
    model = Known().eval()
    text = [3, 4, 5]
    without = surprisal(model, text)
    assert (without.n_tokens, without.total) == (2, pytest.approx(known_cost(model, 4, 1) + known_cost(model, 5, 2)))
    found = surprisal(model, text, start_id=0)
    assert found.n_tokens == 3
    assert found.total == pytest.approx(known_cost(model, 3, 1) + known_cost(model, 4, 2) + known_cost(model, 5, 3))
    assert surprisal(model, [[3], [], [4, 5]], start_id=0).n_tokens == 3


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_a_text_within_the_context_is_the_plain_sum(name):
    model, texts = tiny(name), documents_of([20, 2, 31])
    found = surprisal(model, texts, context=32, batch=3)
    for document, text in enumerate(texts):
        own = found.nats[found.documents == document].sum()
        assert own == pytest.approx(-log_probability(model, text), rel=1e-10)
    assert found.total == pytest.approx(sum(-log_probability(model, text) for text in texts), rel=1e-10)


@pytest.mark.parametrize("name", DECODERS)
def test_a_longer_text_is_the_sum_of_its_windows(name):
    model, (text,) = tiny(name), documents_of([50])
    found = surprisal(model, text, context=16, stride=4, batch=3)
    done = 17
    expected = -log_probability(model, text[:done])
    for start in range(4, 37, 4):  # the last is shorter
        window = text[start : start + 17]
        n_new = start + len(window) - done
        expected += log_probability(model, window[:-n_new]) - log_probability(model, window)
        done += n_new
    assert done == 50
    assert found.total == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("batch", [1, 2, 7, 100])
def test_the_batch_changes_nothing(batch):
    model, texts = tiny("gpt2"), documents_of([50, 3, 17, 32, 33, 0, 1])
    one = surprisal(model, texts, context=16, stride=5, batch=3)
    other = surprisal(model, texts, context=16, stride=5, batch=batch)
    assert np.allclose(one.nats, other.nats, rtol=1e-11, atol=0)
    assert (one.tokens == other.tokens).all()


def test_logits_in_pieces_change_nothing(monkeypatch):
    model, texts = tiny("gpt2"), documents_of([50, 20])
    one = surprisal(model, texts, context=16)
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 3 * VOCAB)
    assert np.allclose(one.nats, surprisal(model, texts, context=16).nats, rtol=1e-11, atol=0)


def test_more_of_the_past_never_crosses_into_another_document():
    model, (first, second) = tiny("llama"), documents_of([20, 20])
    together = surprisal(model, [first, second], context=8, stride=2, batch=4).total
    apart = sum(surprisal(model, text, context=8, stride=2).total for text in (first, second))
    assert together == pytest.approx(apart, rel=1e-11)


def test_the_units():
    model, (text,) = tiny("gpt2"), documents_of([30])
    found = surprisal(model, text, context=16)
    assert bits_per_byte(model, text, 100, context=16) == pytest.approx(found.total / math.log(2) / 100)
    assert perplexity(model, text, context=16) == pytest.approx(math.exp(found.total / 29))
    # a model that knows nothing chooses among all tokens
    blank = tiny("gpt2")
    for parameter in blank.parameters():
        parameter.data.zero_()
    assert perplexity(blank, text) == pytest.approx(VOCAB)
    assert bits_per_byte(blank, text, 29) == pytest.approx(math.log2(VOCAB))


def test_a_window_is_as_long_as_the_model_reads_and_half_of_it_is_past():
    model, (text,) = tiny("gpt2"), documents_of([100])  # of max_len 32
    found = surprisal(model, text)
    assert (found.nats == surprisal(model, text, context=32, stride=16).nats).all()
    assert found.tokens.tolist() == [32, 16, 16, 16, 16, 3]
    endless, (long,) = Known().eval(), documents_of([1100])
    endless.max_len = None  # type: ignore[assignment]
    assert surprisal(endless, long).tokens.tolist() == [1024, 75]


def test_no_perplexity_is_beyond_every_number():
    one = np.array([1])
    assert module.Surprisal(np.array([1e6]), one, one).perplexity == math.exp(700)
    assert module.Surprisal(np.array([690.0]), one, one).perplexity == math.exp(690)


def test_half_precision_is_near():
    model, texts = tiny("gpt2", dtype=torch.float32), documents_of([60, 40])
    exact = surprisal(model, texts).total
    assert surprisal(model, texts, autocast=torch.bfloat16).total == pytest.approx(exact, rel=0.05)
    assert surprisal(model, texts, autocast=torch.bfloat16).total != exact


def test_arrays_tensors_and_lists_are_the_same():
    model, ids = tiny("gpt2"), some_ids(1, 20)[0]
    assert surprisal(model, ids).total == surprisal(model, ids.numpy()).total == surprisal(model, ids.tolist()).total
    assert surprisal(model, ids).total == surprisal(model, [ids]).total


def test_what_cannot_be_scored_is_refused():
    model, text = tiny("gpt2"), [1, 2, 3]
    with pytest.raises(InputError, match="context=33 is longer than this model's max_len=32"):
        surprisal(model, text, context=33)
    with pytest.raises(InputError, match="stride=9 is not between 1 and context=8"):
        surprisal(model, text, context=8, stride=9)
    with pytest.raises(InputError, match="batch=0"):
        surprisal(model, text, batch=0)
    for nothing in ([], [[]], [5]):
        with pytest.raises(InputError, match="no token to score"):
            surprisal(model, nothing)
    with pytest.raises(InputError, match="expected one row of token ids"):
        surprisal(model, some_ids(2, 3))
    with pytest.raises(InputError, match="n_bytes=0"):
        bits_per_byte(model, text, 0)
    with pytest.raises(InputError, match="is not a language model"):
        surprisal(tiny("transformer"), text)
    with pytest.raises(InputError, match=r"model.eval\(\)"):
        surprisal(tiny("gpt2").train(), text)
