"""The LSTM with attention: Bahdanau's formula, and the laws of every translator."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from helpers.decode_batches import beams, translations
from helpers.tiny_models import VOCAB, close, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.decoding import greedy_translate
from cutaway.errors import ConfigError, InputError
from cutaway.families import build
from cutaway.families.lstm_translator import LSTMTranslator
from cutaway.model.additive_attention import AdditiveAttention, masked_softmax
from cutaway.model.tap import edit, watch

MODEL = tiny("lstm-translator", start_id=1)
assert isinstance(MODEL, LSTMTranslator)
D = 24


def rows_of(lengths: list[int], left: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Ids and what is real of them, filled up on one side."""
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return some_ids(len(lengths), max(lengths), seed=seed), real.flip(1) if left else real


@given(seed=st.integers(0, 999))
def test_additive_attention_is_the_formula(seed: int) -> None:
    torch.manual_seed(seed)
    attention = AdditiveAttention(3).double()
    states, memory = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    real = torch.rand(2, 5) > 0.4
    real[1] = False  # nowhere to look
    found, scores, pattern = attention(states, attention.remember(memory), real[:, None])
    w, b, u, v = attention.query.weight, attention.query.bias, attention.key.weight, attention.score.weight[0]
    for row in range(2):
        for query in range(4):
            e = torch.stack([v @ torch.tanh(w @ states[row, query] + b + u @ h) for h in memory[row]])
            assert close(scores[row, query], e)
            if real[row].any():
                alpha = torch.zeros(5, dtype=torch.float64)
                alpha[real[row]] = e[real[row]].exp() / e[real[row]].exp().sum()
                assert close(pattern[row, query], alpha)
                assert close(found[row, query], sum(a * h for a, h in zip(alpha, memory[row], strict=True)))
    assert not pattern[1].any()
    assert not found[1].any()


@given(seed=st.integers(0, 999), size=st.sampled_from([1.0, 1e4, 1e30]))
def test_a_pattern_sums_to_one_and_padding_gets_exactly_nothing(seed: int, size: float) -> None:
    torch.manual_seed(seed)
    scores = (torch.randn(3, 2, 6) * size).requires_grad_()
    real = torch.rand(3, 6) > 0.4
    real[2] = False
    pattern = masked_softmax(scores, real[:, None])
    assert not pattern[~real[:, None].expand_as(pattern)].any()
    assert torch.allclose(pattern.sum(dim=-1), real.any(dim=1).float()[:, None].expand(3, 2))
    pattern.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert torch.equal(masked_softmax(scores, None), scores.softmax(dim=-1))


@torch.no_grad()
def test_the_decoder_is_the_formula_step_by_step() -> None:
    source, target = some_ids(1, 5, seed=1), some_ids(1, 4, seed=2)
    memory = MODEL.encode(source)
    layer = MODEL.decoder[0]
    words = MODEL.target_embedding.tokens.matrix
    cell = layer.first(memory[0, 0, D // 2 :])  # what the backward reading made of the first word
    state = cell.tanh()
    for step, id in enumerate(target[0]):
        word = words[id] * D**0.5
        alpha = layer.cross.score((layer.cross.query(state) + layer.cross.key(memory[0])).tanh())[:, 0].softmax(dim=0)
        context = alpha @ memory[0]
        i, f, g, o = (layer.enter(word) + layer.again(torch.cat([state, context]))).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = o.sigmoid() * cell.tanh()
        hidden = layer.readout(torch.cat([state, context, word])).tanh()
        assert close(MODEL(source, target)[0, step], MODEL.head(hidden))


@torch.no_grad()
def test_the_encoder_is_torchs_two_way_lstm() -> None:
    theirs = torch.nn.LSTM(D, D // 2, num_layers=2, bidirectional=True, batch_first=True).double()
    for number, layer in enumerate(MODEL.encoder):
        for side, ending in ((layer.forwards, ""), (layer.backwards, "_reverse")):
            for name in ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"):
                getattr(theirs, f"{name}{number}{ending}").data = getattr(side.engine, f"{name}0").data
    source, real = rows_of([7, 3, 5])
    found = MODEL.encode(source, real)
    for row, its in enumerate(real):
        read = MODEL.source_embedding.tokens.matrix[source[row, its]] * D**0.5
        assert close(found[row, its], theirs(read[None])[0][0])


@given(at=st.integers(1, 5), seed=st.integers(0, 99))
@torch.no_grad()
def test_the_future_never_changes_the_past_of_the_target(at: int, seed: int) -> None:
    source, target, other = some_ids(2, 7, seed=1), some_ids(2, 6), some_ids(2, 6, seed=seed)
    changed = torch.cat([target[:, :at], other[:, at:]], dim=1)
    assert torch.equal(MODEL(source, target)[:, :at], MODEL(source, changed)[:, :at])


@given(
    lengths=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=2, max_size=4),
    left=st.tuples(st.booleans(), st.booleans()),
    garbage=st.integers(0, VOCAB - 1),
)
@torch.no_grad()
def test_padding_on_either_side_of_source_and_target_changes_nothing_and_its_ids_no_bit(
    lengths: list[tuple[int, int]], left: tuple[bool, bool], garbage: int
) -> None:
    (source, source_real), (target, real) = (
        rows_of([pair[side] for pair in lengths], left[side], seed=side) for side in (0, 1)
    )
    more = {"source_real": source_real, "real": real}
    together = MODEL(source, target, **more)
    for row in range(len(lengths)):
        alone = MODEL(source[row, source_real[row]][None], target[row, real[row]][None])
        assert close(together[row, real[row]], alone[0])
    again = MODEL(source.masked_fill(~source_real, garbage), target.masked_fill(~real, garbage), **more)
    assert torch.equal(again[real], together[real])


@given(cuts=st.sets(st.integers(1, 5)))
@torch.no_grad()
def test_step_by_step_from_the_state_is_one_pass(cuts: set[int]) -> None:
    (source, real), target = rows_of([7, 3]), some_ids(2, 6, seed=2)
    cache = MODEL.new_memory_cache(MODEL.encode(source, real), real, 6)
    ends = [0, *sorted(cuts), 6]
    pieces = [MODEL.decode(target[:, a:b], cache=cache) for a, b in pairwise(ends)]
    assert close(MODEL.head(torch.cat(pieces, dim=1)), MODEL(source, target, source_real=real))


@torch.no_grad()
def test_a_row_of_only_padding_is_no_nan() -> None:
    source, real = rows_of([3, 0])
    assert MODEL(source, some_ids(2, 4), source_real=real).isfinite().all()


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 5}, {"beam": 5, "prune": 0.5, "rows": 2}])
@torch.no_grad()
def test_a_beams_score_is_what_reading_its_text_once_more_gives(options: dict[str, float]) -> None:
    """Were a hypothesis to go on from another's state, its text would carry the score of another."""
    source, real = rows_of([7, 3, 5, 9])
    found = beams(MODEL, source, real=real, n=9, length_penalty=0.6, end_ids=(5, 6, 7), **options)
    for row, its, hypotheses in zip(source, real, found, strict=True):
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            read = torch.tensor([[1, *h.ids[:-1]]])
            scores = MODEL(row[its][None], read)[0].log_softmax(dim=-1)
            total = scores.gather(1, torch.tensor(h.ids)[:, None]).sum().item()
            assert h.score == pytest.approx(total / len(h.ids) ** 0.6, rel=1e-9)


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all() -> None:
    small = tiny("lstm-translator", vocab_size=4)
    source = torch.tensor([[3, 0, 1], [2, 2, 1]])
    texts = torch.cartesian_prod(*[torch.arange(4)] * 3)
    found = beams(small, source, n=3, beam=64, end_ids=[])
    for row, hypotheses in zip(source, found, strict=True):
        with torch.no_grad():
            scores = small(row.expand(64, -1), F.pad(texts[:, :-1], (1, 0), value=1)).log_softmax(dim=-1)
        scores = scores.gather(2, texts[:, :, None]).sum(dim=(1, 2)) / 3
        assert [h.ids for h in hypotheses] == texts[scores.argsort(descending=True)].tolist()


def test_fault_17_a_sentence_is_translated_alone_as_in_any_batch() -> None:
    model, (source, real) = tiny("lstm-translator", dtype=torch.float32), rows_of([7, 3, 1])
    for options in ({"beam": 1}, {"beam": 4, "rows": 2}):
        together = translations(model, source, real=real, n=6, end_ids=(5, 6, 7), **options)
        alone = [
            translations(model, row[its][None], n=6, end_ids=(5, 6, 7), beam=options["beam"])[0]
            for row, its in zip(source, real, strict=True)
        ]
        assert together == alone
    free = greedy_translate(tiny("lstm-translator", dtype=torch.float32, start_id=1), source, n=6, real=real)
    assert translations(model, source, real=real, n=6, end_ids=(), beam=1) == free.tolist()


@torch.no_grad()
def test_where_each_step_looked_is_watched_in_one_pass_and_step_by_step() -> None:
    (source, real), (target, target_real) = rows_of([7, 3]), rows_of([6, 4], left=True, seed=2)
    name = "decoder.0.cross.pattern"
    before = MODEL(source, target, source_real=real, real=target_real)
    with watch(MODEL, "*") as seen:
        assert torch.equal(MODEL(source, target, source_real=real, real=target_real), before)
    pattern = seen[name]
    assert pattern.shape == (2, 1, 6, 7)
    assert torch.allclose(pattern.sum(dim=-1), torch.ones(2, 1, 6, dtype=torch.float64))
    assert not pattern[1, :, :, 3:].any()
    assert close(seen["decoder.0.cross.output"], pattern[:, 0] @ MODEL.encode(source, real))
    for row, its in enumerate(target_real):
        with watch(MODEL, name, keep="all") as steps:
            cache = MODEL.new_memory_cache(MODEL.encode(source[row : row + 1, real[row]]), None, 6)
            for id in target[row, its]:
                MODEL.decode(id[None, None], cache=cache)
        assert close(torch.cat(steps[name], dim=2)[0, 0], pattern[row, 0][its][:, real[row]])


@torch.no_grad()
def test_who_edits_the_pattern_chooses_what_is_read() -> None:
    source, target = some_ids(1, 5, seed=1), some_ids(1, 4, seed=2)

    def first(pattern: Tensor) -> Tensor:
        return F.one_hot(torch.zeros(pattern.shape[:-1], dtype=torch.long), pattern.shape[-1]).to(pattern.dtype)

    with edit(MODEL, {"decoder.0.cross.pattern": first}), watch(MODEL, "decoder.0.cross.output") as seen:
        MODEL(source, target)
    assert torch.equal(seen["decoder.0.cross.output"], MODEL.encode(source)[:, :1].expand(1, 4, D))


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ConfigError, match="d_model=7 is odd"):
        build("lstm-translator", d_model=7)
    with pytest.raises(InputError, match="no memory to attend to"):
        MODEL.decode(some_ids(1, 2))
