"""Pruning a beam, and steps that leave out the dead: held against a search in plain Python, and against full steps."""

from functools import cache

import pytest
import torch
from helpers.tiny_models import DECODERS, TRANSLATORS, tiny

from cutaway import watch
from cutaway.decoding import Hypothesis, Job, run_jobs
from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.rules.scores import MinLength
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import NEVER, Search
from cutaway.errors import InputError
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.model import DecoderModel

START = 1
ENDS = [5, 6, 7, 8]
LIMITS = [9, 5, 12, 7]


@cache
def model_of(name: str, dtype: torch.dtype = torch.float64) -> DecoderModel:
    """With scores so close that beams overtake each other."""
    model = tiny(name, dtype=dtype)
    for parameter in model.decoder.parameters():
        parameter.data *= 0.7
    return model


def jobs_for(name: str, **more) -> list[Job]:
    sources = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7], [9, 3, 2]]
    if name in TRANSLATORS:
        return [Job(prompt=[START], source=ids, limit=n, **more) for ids, n in zip(sources, LIMITS, strict=True)]
    return [Job(prompt=ids, limit=n, **more) for ids, n in zip(sources, LIMITS, strict=True)]


def log_ps(model: DecoderModel, job: Job, text: tuple[int, ...]) -> list[float]:
    """Of every token that may follow, in one pass and without a cache."""
    read = torch.tensor([[*job.prompt, *text]])
    with torch.no_grad():
        logits = model(torch.tensor([job.source]), read) if job.source else model(read)
    return logits[0, -1].log_softmax(dim=-1).tolist()


def plain_search(model: DecoderModel, job: Job, width: int, prune: float, early: bool | str) -> list[Hypothesis]:
    """A pruned beam as one would write it down: plain lists, no cache, one text."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    best_ended = NEVER
    for length in range(1, job.limit + 1):
        every = [(total + p, (*text, id)) for total, text in running for id, p in enumerate(log_ps(model, job, text))]
        every.sort(reverse=True)
        over = [(total, text) for total, text in every[:width] if text[-1] in ENDS or length == job.limit]
        best_ended = max([best_ended, *(total for total, _ in over)])
        ended = sorted([*ended, *((total / length, text) for total, text in over)], reverse=True)[:width]
        running = [one for one in every if one[1][-1] not in ENDS][:width]
        best = max(best_ended, running[0][0])
        running = [one for one in running if one[0] >= best - prune]
        full = len(ended) == width
        if not running or (full and (early is True or running[0][0] / length <= ended[-1][0])):
            break
    return [Hypothesis(list(text), score) for score, text in ended]


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], rel: float = 1e-9) -> bool:
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], rel=rel)
    return True


@pytest.mark.parametrize("name", TRANSLATORS + DECODERS)
@pytest.mark.parametrize(
    ("width", "prune", "early"), [(2, 0.3, False), (4, 0.8, False), (4, 0.1, True), (5, 2.0, False)]
)
def test_a_pruned_beam_is_the_search_that_one_would_write_down(name, width, prune, early):
    model, jobs = model_of(name), jobs_for(name)
    expected = [plain_search(model, job, width, prune, early) for job in jobs]
    found = run_jobs(model, jobs, beam=width, prune=prune, early_stopping=early, end_ids=ENDS, rows=3)
    assert same(found, expected)


@pytest.mark.parametrize("name", ["transformer", "llama"])
def test_a_threshold_without_bounds_prunes_nothing(name):
    model, jobs = model_of(name, torch.float32), jobs_for(name)
    whole = run_jobs(model, jobs, beam=4, end_ids=ENDS)
    assert same(run_jobs(model, jobs, beam=4, end_ids=ENDS, prune=float("inf")), whole, rel=1e-5)
    assert same(run_jobs(model, jobs, beam=4, end_ids=ENDS, prune=1e9), whole, rel=1e-5)
    assert min(map(len, run_jobs(model, jobs, beam=4, end_ids=ENDS, prune=0.1))) < 4 == min(map(len, whole))
    groups = {"beam": 4, "groups": 2, "end_ids": ENDS}
    assert same(run_jobs(model, jobs, prune=1e9, **groups), run_jobs(model, jobs, **groups), rel=1e-5)


@pytest.mark.parametrize("name", TRANSLATORS + DECODERS)
@pytest.mark.parametrize(
    "options", [{"prune": 99.0}, {"prune": 0.5}, {"prune": 0.5, "groups": 2}, {"prune": 0.5, "rules": True}]
)
def test_leaving_out_the_dead_changes_nothing(name, options, monkeypatch):
    """In any batch, and for rules and groups, which look at every row."""
    model, options = model_of(name, torch.float32), dict(options)
    jobs = jobs_for(name, rules=(MinLength(3),) if options.pop("rules", False) else ())
    options |= {"beam": 4, "end_ids": ENDS}
    packed = [run_jobs(model, jobs, rows=rows, **options) for rows in (1, 2, 4)]
    monkeypatch.setattr(BeamSearch, "living", Search.living)
    full = run_jobs(model, jobs, **options)
    assert all(same(found, full, rel=1e-5) for found in packed)


def test_a_step_reads_the_living_only(monkeypatch):
    model, jobs = model_of("transformer"), jobs_for("transformer")
    read, hidden = [], Engine._hidden

    def seen(self, ids, *rest):
        read.append(ids.shape)
        return hidden(self, ids, *rest)

    monkeypatch.setattr(Engine, "_hidden", seen)
    run_jobs(model, jobs, beam=4, end_ids=ENDS, prune=0.0)
    assert read[0] == (1, 4)  # a beam begins with one hypothesis of each text,
    assert all(shape[0] * shape[1] <= 4 for shape in read)  # and with this threshold goes on with one
    read.clear()
    with watch(model, "decoder.*.residual_after"):
        run_jobs(model, jobs, beam=4, end_ids=ENDS, prune=0.0)
    assert read[0] == (4, 4)


@pytest.mark.parametrize("name", ["transformer", "t5", "gpt2", "llama-window"])
def test_watching_a_pruned_beam_changes_no_word(name):
    model, jobs = model_of(name, torch.float32), jobs_for(name)
    options = {"beam": 4, "end_ids": ENDS, "prune": 0.5, "rows": 3}
    with watch(model, "decoder.*.attention.pattern"):
        watched = run_jobs(model, jobs, **options)
    assert same(run_jobs(model, jobs, **options), watched, rel=1e-5)


def test_what_is_packed_comes_back_to_its_place():
    living = torch.tensor([[False, True, False], [True, True, True], [False, False, True]])
    packing = Packing.of(living)
    x = torch.arange(18).view(3, 3, 2)
    assert torch.equal(packing.gather(x), x[living])
    assert torch.equal(packing.spread(x[living])[living], x[living])
    assert packing.counts.tolist() == [1, 3, 1]
    assert packing.order.tolist() == [0, 0, 1, 2, 0]
    assert Packing.of(torch.ones(2, 3, dtype=torch.bool)) is None


@pytest.mark.parametrize("prune", [-1.0, float("nan")])
def test_a_threshold_that_means_nothing_is_refused(prune):
    model, jobs = model_of("gpt2"), jobs_for("gpt2")
    for beam in (1, 4):
        with pytest.raises(InputError, match="prune="):
            run_jobs(model, jobs, beam=beam, prune=prune)
    with pytest.raises(InputError, match="prune="):
        GenerationOptions(beam=4, prune=prune)
    with pytest.raises(InputError, match="set beam to 2 or more"):
        GenerationOptions(prune=1.0)
