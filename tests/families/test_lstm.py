"""The LSTM language model keeps the laws of every decoder: time, padding, batches, documents, the cache and beams."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers.tiny_models import VOCAB, close, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.decoding import Job, greedy, run_jobs
from cutaway.decoding.search.speculative import speculative
from cutaway.errors import InputError
from cutaway.evaluation.shared_prefixes import Branches, trees
from cutaway.families.lstm import LSTMModel
from cutaway.inside.description import describe

MODEL = tiny("lstm")
assert isinstance(MODEL, LSTMModel)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3]]


def log_p(prompt: list[int], text: list[int]) -> float:
    """Of a text behind a prompt, in one pass and without a cache."""
    with torch.no_grad():
        scores = MODEL(torch.tensor([prompt + text]))[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
    return scores.gather(1, torch.tensor(text)[:, None]).sum().item()


def test_it_is_torchs_lstm_between_embedding_and_de_embedding() -> None:
    ids = some_ids(2, 6)
    theirs = torch.nn.LSTM(24, 24, num_layers=2, batch_first=True).double()
    for number, layer in enumerate(MODEL.decoder):
        for name in ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"):
            getattr(theirs, f"{name}{number}").data = getattr(layer.engine, f"{name}0").data
    words = MODEL.embedding.tokens.matrix
    assert close(MODEL(ids), theirs(words[ids] * 24**0.5)[0] @ words.T)


@given(at=st.integers(1, 7), seed=st.integers(0, 99))
def test_the_future_never_changes_the_past(at: int, seed: int) -> None:
    ids, other = some_ids(2, 8), some_ids(2, 8, seed=seed)
    changed = torch.cat([ids[:, :at], other[:, at:]], dim=1)
    with torch.no_grad():
        assert torch.equal(MODEL(ids)[:, :at], MODEL(changed)[:, :at])
        if not torch.equal(ids[:, at], changed[:, at]):
            assert not torch.equal(MODEL(ids)[:, at:], MODEL(changed)[:, at:])


@given(cuts=st.sets(st.integers(1, 7)))
def test_step_by_step_from_the_state_is_one_pass(cuts: set[int]) -> None:
    ids, cache = some_ids(3, 8), MODEL.new_cache(3, 8)
    with torch.no_grad():
        ends = [0, *sorted(cuts), 8]
        pieces = [MODEL(ids[:, a:b], cache=cache) for a, b in pairwise(ends)]
        assert close(torch.cat(pieces, dim=1), MODEL(ids))


@pytest.mark.parametrize("cached", [False, True])
@given(holes=st.lists(st.booleans(), min_size=9, max_size=9).filter(any), garbage=st.integers(0, VOCAB - 1))
def test_padding_left_right_or_between_changes_nothing_and_what_stands_there_no_bit(
    cached: bool, holes: list[bool], garbage: int
) -> None:
    ids, real = some_ids(1, 9), torch.tensor([holes])

    def read(ids: Tensor) -> Tensor:
        return MODEL(ids, real=real, cache=MODEL.new_cache(1, 9) if cached else None)[real]

    with torch.no_grad():
        out = read(ids)
        assert close(out, MODEL(ids[real][None])[0])
        assert torch.equal(read(ids.masked_fill(~real, garbage)), out)


@given(lengths=st.lists(st.integers(0, 7), min_size=2, max_size=5).filter(any), left=st.booleans())
def test_texts_of_different_lengths_are_read_together_as_one_by_one(lengths: list[int], left: bool) -> None:
    n = max(lengths)
    ids, along = some_ids(len(lengths), n), torch.arange(n)[None]
    real = along < torch.tensor(lengths)[:, None]
    real = real.flip(1) if left else real
    with torch.no_grad():
        together = MODEL(ids, real=real)
        assert together.isfinite().all()
        for row, its in enumerate(real):
            if its.any():
                assert close(together[row, its], MODEL(ids[row, its][None])[0])


def test_documents_in_one_row_do_not_see_each_other() -> None:
    ids, real = some_ids(1, 9), torch.tensor([[False, False, True, True, True, False, True, True, True]])
    out = MODEL(ids, real=real, documents=torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1]]))
    assert close(out[0, 2:5], MODEL(ids[:, 2:5])[0])
    assert close(out[0, 6:], MODEL(ids[:, 6:])[0])


@torch.no_grad()
def test_rows_of_a_cache_go_on_by_themselves_move_and_take_tokens_back() -> None:
    ids, cache = some_ids(3, 6), MODEL.new_cache(3, 8)
    MODEL(ids[0:1, :5], cache=cache.rows(0, 1))
    MODEL(ids[2:3, :2], cache=cache.rows(2, 3))
    MODEL(ids[1:2, :4], cache=cache.rows(1, 2))
    cache.crop(torch.tensor([5, 3, 2]))
    cache.move([2], [0])
    last = MODEL(ids[:, 5:], cache=cache)
    for row, (whose, n) in enumerate([(2, 2), (1, 3), (2, 2)]):
        assert close(last[row, 0], MODEL(torch.cat([ids[whose, :n], ids[row, 5:]])[None])[0, -1])


@torch.no_grad()
def test_sentences_that_begin_alike_are_read_as_a_tree() -> None:
    sentences = [[1, 2, 3], [1, 2, 4, 5], [1, 6], [7, 8, 9, 2, 1]]
    some = list(trees(sentences, nodes=8))
    ids, branches = Branches.of(MODEL, some)
    found = MODEL(ids, cache=branches)
    for row, tree in enumerate(some):
        for number, way in tree.ways.items():
            assert close(found[row, way], MODEL(torch.tensor([sentences[number]]))[0])


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "rows": 1}, {"beam": 5, "prune": 0.5}])
def test_a_beams_score_is_what_reading_its_text_once_more_gives(options: dict[str, Any]) -> None:
    """Were a hypothesis to go on from another's state, its text would carry the score of another."""
    options = {"length_penalty": 0.6, "end_ids": [5, 6], **options}
    found = run_jobs(MODEL, [Job(prompt=ids, limit=9) for ids in PROMPTS], **options)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        for h in hypotheses:
            assert h.score == pytest.approx(log_p(prompt, h.ids) / len(h.ids) ** 0.6, rel=1e-9)


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all() -> None:
    small = tiny("lstm", vocab_size=4)
    (found,) = run_jobs(small, [Job(prompt=[1], limit=3)], beam=64, end_ids=[])
    texts = torch.cartesian_prod(*[torch.arange(4)] * 3)
    with torch.no_grad():
        read = torch.cat([torch.ones(64, 1, dtype=torch.long), texts[:, :-1]], dim=1)
        scores = small(read).log_softmax(dim=-1).gather(2, texts[:, :, None]).sum(dim=(1, 2)) / 3
    order = scores.argsort(descending=True)
    assert [h.ids for h in found] == texts[order].tolist()
    assert [h.score for h in found] == pytest.approx(scores[order].tolist(), rel=1e-9)


def test_greedy_is_the_likeliest_token_again_and_again_also_with_a_draft() -> None:
    model, draft = (tiny("lstm", dtype=torch.float32, seed=seed) for seed in (0, 1))
    ids, text = some_ids(1, 4), some_ids(1, 4)
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, model(text)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(greedy(model, ids, n=8), text[:, 4:])
    assert torch.equal(torch.tensor(speculative(model, draft, ids, n=8, k=3).texts), text[:, 4:])


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InputError, match="50"):
        MODEL(torch.tensor([[50]]))
    with pytest.raises(InputError, match="documents"):
        MODEL(some_ids(1, 2), documents=torch.zeros(1, 2, dtype=torch.long), cache=MODEL.new_cache(1, 4))
    with pytest.raises(InputError, match="use new_cache"):
        MODEL(some_ids(1, 2), cache=tiny("gpt2").new_cache(1, 4))


def test_its_work_grows_with_the_length_and_not_with_its_square() -> None:
    """A product with every matrix at every token: of two layers, four gates of x and of h, and the de-embedding."""
    config = MODEL.config
    short, long = (describe(config, batch=2, length=n).flops for n in (2, 6))
    assert short.forward == 2 * 2 * 2 * (2 * 4 * (24 * 24 + 24 * 24) + 24 * VOCAB)
    assert long.forward == 3 * short.forward
