"""Beam search: laws that hold for any model; `parity/test_beam.py` holds it against transformers."""

import itertools

import pytest
import torch
from helpers.beam_translator import START, STOPS, log_p, log_ps, sources, translator
from helpers.decode_batches import beams, continuations, translations
from helpers.tiny_models import DECODERS, TRANSLATORS, some_ids, tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.decoding import Hypothesis, Job, greedy, greedy_translate, run_jobs
from cutaway.decoding.engine.engine import BLOCK
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import NEVER, GreedySearch
from cutaway.errors import InputError
from cutaway.model.model import Model


def until_end(row: Tensor, ends: tuple[int, ...]) -> list[int]:
    ids = row.tolist()
    return ids[: next((i + 1 for i, id in enumerate(ids) if id in ends), len(ids))]


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


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_score_is_the_log_probability_of_its_continuation(name, beam):
    model, prompts = tiny(name), [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3]]
    found = run_jobs(
        model, [Job(prompt=ids, limit=9) for ids in prompts], beam=beam, length_penalty=0.6, end_ids=[5, 6]
    )
    for prompt, hypotheses in zip(prompts, found, strict=True):
        for h in hypotheses:
            with torch.no_grad():
                log_p = model(torch.tensor([prompt + h.ids]))[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
            total = log_p.gather(1, torch.tensor(h.ids)[:, None]).sum().item()
            assert h.score == pytest.approx(total / len(h.ids) ** 0.6, rel=1e-9)


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
    monkeypatch.setitem(BLOCK, "cpu", 32)
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


def texts_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in row] for row in found]


def diverse(
    model: Model, source: Tensor, n: int, each: int, groups: int, price: float, ends: list[int], penalty: float
):
    """Diverse beam search as one would write it down: plain lists, no cache, one text. A full group stops."""
    beams = [[((), 0.0)] for _ in range(groups)]
    ended: list[list[tuple[tuple[int, ...], float]]] = [[] for _ in range(groups)]
    for length in range(1, n + 1):
        taken: list[int] = []
        for group in range(groups):
            if len(ended[group]) >= each:
                continue
            weighed = []
            for text, total in beams[group]:
                read = torch.tensor([[START, *text]])
                with torch.no_grad():
                    log_p = model(source[None], read)[0, -1].log_softmax(dim=-1).tolist()
                weighed += [(total + p - price * taken.count(id), (*text, id), total + p) for id, p in enumerate(log_p)]
            weighed = sorted(weighed, reverse=True)[: each * (1 + len(ends))]
            for _, text, total in weighed[:each]:
                if text[-1] in ends or length == n:
                    ended[group].append((text, total / length**penalty))
            ended[group] = sorted(ended[group], key=lambda one: -one[1])[:each]
            beams[group] = [(text, total) for _, text, total in weighed if text[-1] not in ends][:each]
            taken += [text[-1] for text, _ in (beams[group] if length < n else [w[1:] for w in weighed[:each]])]
    best = dict(sorted((one for group in ended for one in group), key=lambda one: -one[1]))
    return [list(text) for text in best], list(best.values())


@pytest.mark.parametrize(("each", "groups"), [(1, 4), (2, 2), (2, 3)])
@pytest.mark.parametrize("price", [0.2, 1.0])
@pytest.mark.parametrize("ends", [[40], list(range(0, 50, 3))], ids=["late", "early"])  # some groups, and all of them
def test_groups_are_told_apart_as_the_paper_says(each, groups, price, ends):
    model, (source, real) = translator("t5", dtype=torch.float64, tied=False), sources([7, 3, 5, 9])
    options = {"beam": each * groups, "groups": groups, "diversity": price, "length_penalty": 2.0}
    found = beams(model, source, n=7, real=real, early_stopping=True, end_ids=ends, **options)
    for row, its, hypotheses in zip(source, real, found, strict=True):
        texts, scores = diverse(model, row[its], 7, each, groups, price, ends, 2.0)
        assert [h.ids for h in hypotheses] == texts
        assert [h.score for h in hypotheses] == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("stop", STOPS)
def test_groups_that_cost_nothing_all_find_what_a_narrow_beam_finds(stop):
    model, (source, real) = translator(dtype=torch.float64), sources([7, 3, 5, 9])
    options = {"n": 9, "real": real, "end_ids": [5, 6, 7], "early_stopping": stop}
    narrow = beams(model, source, beam=2, **options)
    assert texts_of(beams(model, source, beam=6, groups=3, diversity=0.0, **options)) == texts_of(narrow)
    assert beams(model, source, beam=2, groups=1, diversity=9.0, **options) == narrow
    # the first group pays nothing: what it finds is always among what is found
    for row, few in zip(beams(model, source, beam=6, groups=3, diversity=2.0, **options), narrow, strict=True):
        assert {tuple(h.ids) for h in few} <= {tuple(h.ids) for h in row}


def test_groups_find_texts_that_differ_more():
    model, source = translator(), some_ids(20, 6)
    beginnings = {}
    for price in (0.0, 1.0, 50.0):
        found = beams(model, source, n=6, beam=4, groups=4, diversity=price, end_ids=[])
        beginnings[price] = sum(len({h.ids[0] for h in row}) for row in found)
    assert beginnings[0.0] == 20 < beginnings[1.0] < beginnings[50.0] == 80


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("penalty", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_never_gives_up_no_text_that_could_still_win(penalty, groups, monkeypatch):
    """It finds what a beam finds that goes on to its limit, whether length is paid for or costs, and mostly sooner."""
    n, rows, vocab = 8, 100, 6
    following = 6 * torch.randn(n, rows, vocab, vocab, dtype=torch.float64)  # logits after each token

    def found() -> tuple[list[list[Hypothesis]], int]:
        room = {"rows": rows, "most": n, "ends": [0, 1], "device": torch.device("cpu"), "dtype": torch.float64}
        search = BeamSearch(3 * groups, groups=groups, length_penalty=penalty, early_stopping="never", **room)
        search.enter(slice(rows), [Job(prompt=[1], limit=n)] * rows)
        last = torch.ones(rows, 3 * groups, dtype=torch.long)
        for logits in following:
            _, last = search.advance(logits[torch.arange(rows)[:, None], last])
        return [search.found(row) for row in range(rows)], int(search.written.sum())

    best, steps = found()
    monkeypatch.setattr(BeamSearch, "_nothing_to_hope", lambda self, its, going_on: going_on.amax(dim=1) == NEVER)
    patient, most = found()
    assert best == patient
    assert steps < most == n * rows


@pytest.mark.parametrize("rows", [1, 3])
def test_fault_17_groups_in_any_batch(rows):
    model, (source, real) = translator(), sources([7, 3, 5, 9, 2, 4])
    options = {"n": [9, 4, 7, 9, 3, 8], "real": real, "groups": 2, "diversity": 0.7, "end_ids": range(5, 15)}
    assert texts_of(beams(model, source, rows=rows, **options)) == texts_of(beams(model, source, **options))


@pytest.mark.parametrize("kind", ["greedy", "beam", "groups"])
def test_a_row_that_is_done_may_be_stepped_on(kind):
    """A captured step may be replayed before anybody looks who is done."""
    room = {"rows": 2, "most": 5, "ends": [3], "device": torch.device("cpu")}
    search = GreedySearch(**room) if kind == "greedy" else BeamSearch(4, groups=2 if kind == "groups" else 1, **room)
    search.enter(slice(0, 2), [Job(prompt=[1], limit=2), Job(prompt=[1], limit=5)])
    found = {}
    for _ in range(12):
        for row in search.done.nonzero()[:, 0].tolist():
            found.setdefault(row, search.found(row))
        search.advance(torch.randn(2, search.width, 9))
    assert search.done.all()
    assert [search.found(row) for row in (0, 1)] == [found[0], found[1]]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_beam_that_is_stopped_gives_the_best_that_it_had(groups):
    """Somebody who listens has heard enough, before any text has ended."""
    model, ids = translator(), [5, 6, 7]
    options = {"beam": 4, "groups": groups, "end_ids": [40]}
    heard: list[list[int]] = []

    def hear(text: list[int]) -> bool:
        heard.append(text)
        return len(text) == 3

    jobs = [Job(prompt=[1], source=ids, limit=9, hear=hear), Job(prompt=[1], source=ids, limit=9)]
    stopped, other = run_jobs(model, jobs, **options)
    short = run_jobs(model, [Job(prompt=[1], source=ids, limit=3)], **options)[0]
    assert stopped[0].ids == short[0].ids  # as if three tokens had been all
    assert heard[-1] in [one.ids for one in stopped]
    assert len({tuple(one.ids) for one in stopped}) == len(stopped)
    assert texts_of([other]) == texts_of(run_jobs(model, jobs[1:], **options))


def test_what_has_ended_counts_when_a_beam_is_stopped():
    model, ids = translator(), [5, 6, 7]
    ends = list(range(10, 50))
    job = Job(prompt=[1], source=ids, limit=9, hear=lambda text: len(text) == 2)
    found = run_jobs(model, [job], beam=4, end_ids=ends, early_stopping="never")[0]
    assert {one.ids[-1] in ends for one in found} == {True, False}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(one.score == pytest.approx(log_p(model, torch.tensor([ids]), one.ids) / len(one.ids)) for one in found)


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
        ("has an empty prompt", Job(prompt=[], source=ids, limit=3), {}),
        ("empty source", Job(prompt=[1], limit=3), {}),
        ("length_penalty=nan", Job(prompt=[1], source=ids, limit=3), {"length_penalty": float("nan")}),
        ("groups=3 must divide beam=4", Job(prompt=[1], source=ids, limit=3), {"beam": 4, "groups": 3}),
        ("groups=2 must divide beam=1", Job(prompt=[1], source=ids, limit=3), {"groups": 2}),
        ("diversity=-1", Job(prompt=[1], source=ids, limit=3), {"beam": 4, "diversity": -1.0}),
    ):
        with pytest.raises(InputError, match=match):
            run_jobs(model, [job], **options)
    with pytest.raises(InputError, match="no encoder"):
        run_jobs(tiny("gpt2"), [Job(prompt=[1], source=ids, limit=3)])
    with pytest.raises(InputError, match="task='hidden'"):
        run_jobs(tiny("gpt2", task="hidden"), [Job(prompt=[1], limit=3)])
    with pytest.raises(InputError, match="in training"):
        run_jobs(model.train(), [Job(prompt=[1], source=ids, limit=3)])
    assert run_jobs(model.eval(), []) == []
    assert len(run_jobs(model, [Job(prompt=[1], source=ids, limit=32)])[0]) == 1
