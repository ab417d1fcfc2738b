"""Beam search: laws that hold for any model; `parity/test_beam.py` holds it against transformers."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import DECODERS, TRANSLATORS, some_ids, tiny
from torch import Tensor
from written import beams, continuations, translations

from cutaway.decoding import Job, greedy, greedy_translate, write
from cutaway.errors import InputError
from cutaway.model.model import Model

START = 1
STOPS = [False, True, "never"]


def translator(name: str = "transformer", **changes) -> Model:
    """With scores so close that beams overtake each other."""
    model = tiny(name, **{"dtype": torch.float32, "start_id": START, **changes})
    for parameter in model.decoder.parameters():
        parameter.data *= 0.7
    return model


def sources(lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return some_ids(len(lengths), max(lengths), seed=seed), real


def until_end(row: Tensor, ends: tuple[int, ...]) -> list[int]:
    ids = row.tolist()
    return ids[: next((i + 1 for i, id in enumerate(ids) if id in ends), len(ids))]


def log_p(model: Model, source: Tensor, target: list[int]) -> float:
    """Of a target, in one pass and without a cache."""
    return log_ps(model, source, [target])[0]


def log_ps(model: Model, source: Tensor, targets: list[list[int]]) -> list[float]:
    """Of targets of one length."""
    read = torch.tensor([[START, *target[:-1]] for target in targets])
    with torch.no_grad():
        scores = model(source.expand(len(targets), -1), read).double().log_softmax(dim=-1)
    return scores.gather(2, torch.tensor(targets)[:, :, None]).sum(dim=(1, 2)).tolist()


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("stop", STOPS)
def test_a_beam_of_one_is_greedy(name, stop):
    model, (source, real) = translator(name), sources([7, 3, 5, 9])
    free = greedy_translate(model, source, n=10, real=real, end_ids=())
    for ends in ((), (int(free[0, 3]), int(free[1, 1]))):
        expected = [until_end(row, ends) for row in greedy_translate(model, source, n=10, real=real, end_ids=ends)]
        assert not ends or min(map(len, expected)) < 10
        for penalty in (1.0, 3.0):  # with 3, a longer text would beat one that has ended
            options = {"length_penalty": penalty, "early_stopping": stop, "end_ids": ends}
            assert translations(model, source, n=10, beam=1, real=real, **options) == expected


@pytest.mark.parametrize("name", DECODERS)
def test_a_beam_of_one_is_greedy_for_a_decoder_by_itself(name):
    model, (ids, real) = tiny(name, dtype=torch.float32), sources([7, 3, 5])
    ends = (5, 6, 7, 8)
    expected = greedy(model, ids, n=10, real=real, end_ids=ends)
    assert continuations(model, ids, n=10, beam=1, real=real, end_ids=ends) == [
        until_end(row, ends) for row in expected
    ]


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("stop", STOPS)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(penalty, stop):
    vocab, n, end = 4, 4, 2
    model = translator(vocab_size=vocab, dtype=torch.float64)
    source = torch.tensor([[3, 0, 1], [2, 2, 1]])
    found = beams(
        model,
        source,
        n=n,
        beam=vocab**n,
        length_penalty=penalty,
        early_stopping=stop,
        end_ids=[end],
    )
    others = [id for id in range(vocab) if id != end]
    texts = [[[*text, end] for text in itertools.product(others, repeat=length)] for length in range(n)]
    texts[-1] += [list(text) for text in itertools.product(others, repeat=n)]  # cut by the limit
    for row, hypotheses in zip(source, found, strict=True):
        scores = {}
        for same_length in texts:
            for text, score in zip(same_length, log_ps(model, row, same_length), strict=True):
                scores[tuple(text)] = score / len(text) ** penalty
        best = sorted(scores, key=lambda text: -scores[text])
        assert [tuple(h.ids) for h in hypotheses] == best
        assert [h.score for h in hypotheses] == pytest.approx([scores[text] for text in best], rel=1e-9)


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("penalty", [0.0, 1.0, 0.6])
def test_a_score_is_the_log_probability_of_its_text(name, penalty):
    """Were the rows of the cache mixed up, a text would carry the score of another."""
    model, (source, real) = translator(name, dtype=torch.float64), sources([7, 3, 5, 9])
    ends = (5, 6, 7)
    found = beams(model, source, n=12, beam=5, length_penalty=penalty, real=real, end_ids=ends)
    for row, its, hypotheses in zip(source, real, found, strict=True):
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) == 5
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            assert h.score == pytest.approx(log_p(model, row[its], h.ids) / len(h.ids) ** penalty, rel=1e-9)
            assert all(id not in ends for id in h.ids[:-1])
            assert h.ids[-1] in ends or len(h.ids) == 12


@settings(max_examples=10)
@given(st.lists(st.integers(2, 12), min_size=2, max_size=5), st.sampled_from([2, 4]), st.sampled_from(STOPS))
def test_fault_17_a_sentence_is_translated_alone_as_in_any_batch(lengths, beam, stop):
    model, (source, real) = translator(), sources(lengths, seed=len(lengths))
    limits = [4 + length for length in lengths]
    # many ends, so that sentences are done at different times; a penalty under which those that went on would win
    options = {"beam": beam, "early_stopping": stop, "end_ids": range(5, 25), "length_penalty": 2.0}
    together = translations(model, source, n=limits, real=real, **options)
    alone = [
        translations(model, row[its][None], n=n, **options)[0] for row, its, n in zip(source, real, limits, strict=True)
    ]
    assert together == alone
    assert all(len(text) <= n for text, n in zip(together, limits, strict=True))


@pytest.mark.parametrize("name", DECODERS)
def test_fault_17_a_prompt_is_continued_alone_as_in_any_batch(name):
    model, (ids, real) = tiny(name, dtype=torch.float32), sources([7, 3, 5])
    left = torch.stack([row.roll(int((~its).sum())) for row, its in zip(ids, real, strict=True)])
    alone = [continuations(model, row[its][None], n=12, end_ids=[5, 6])[0] for row, its in zip(ids, real, strict=True)]
    assert continuations(model, ids, n=12, real=real, end_ids=[5, 6]) == alone
    assert continuations(model, left, n=12, real=real.flip(1), end_ids=[5, 6]) == alone


def test_more_blocks_of_the_cache_than_one(monkeypatch):
    model, (source, real) = translator(), sources([7, 3])
    once = translations(model, source, n=30, real=real, end_ids=[])
    monkeypatch.setattr("cutaway.decoding.engine.BLOCK", 4)
    assert translations(model, source, n=30, real=real, end_ids=[]) == once


def test_a_wider_beam_finds_likelier_texts():
    """Not a law for each, but over many sentences it has to show."""
    model = translator()
    source = some_ids(40, 6)
    widths = {}
    for beam in (1, 2, 8):
        found = beams(model, source, n=8, beam=beam, length_penalty=0.0, end_ids=[])
        widths[beam] = sum(hypotheses[0].score for hypotheses in found)
    assert widths[1] < widths[2] < widths[8]


def test_the_models_own_ends_count_unless_others_are_given():
    model, source = translator(end_ids=(5, 6, 7, 8, 9)), some_ids(2, 5)
    assert translations(model, source, n=9) == translations(model, source, n=9, end_ids=[5, 6, 7, 8, 9])
    assert all(len(text) == 9 for text in translations(model, source, n=9, end_ids=[]))


def test_what_cannot_be_written_is_refused():
    model, ids = translator(), [5, 6, 7]
    for match, job, options in (
        ("beam=0", Job(prompt=[1], source=ids, limit=3), {"beam": 0}),
        ("limit=0", Job(prompt=[1], source=ids, limit=0), {}),
        ("at most 32 more fit", Job(prompt=[1], source=ids, limit=33), {}),
        ("nothing to begin with", Job(prompt=[], source=ids, limit=3), {}),
        ("empty source", Job(prompt=[1], limit=3), {}),
    ):
        with pytest.raises(InputError, match=match):
            write(model, [job], **options)
    with pytest.raises(InputError, match="no encoder"):
        write(tiny("gpt2"), [Job(prompt=[1], source=ids, limit=3)])
    with pytest.raises(InputError, match="task='hidden'"):
        write(tiny("gpt2", task="hidden"), [Job(prompt=[1], limit=3)])
    with pytest.raises(InputError, match="in training"):
        write(model.train(), [Job(prompt=[1], source=ids, limit=3)])
    assert write(model.eval(), []) == []
    assert len(write(model, [Job(prompt=[1], source=ids, limit=32)])[0]) == 1
