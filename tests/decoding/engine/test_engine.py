"""The engine: what is written in a row depends on its job alone, whoever works beside it, before it and after it."""

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from helpers.engine_jobs import ENDS, jobs_for, model_of, texts
from helpers.tiny_models import DECODERS, TRANSLATORS, VOCAB
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import watch
from cutaway.decoding import Engine, Job, finished_jobs, run_jobs
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import GreedySearch, Search
from cutaway.model.model import DecoderModel


def engine_of(model: DecoderModel, beam: int, rows: int, jobs: list[Job]) -> Engine:
    most, prompt = max(job.limit for job in jobs), max(len(job.prompt) for job in jobs)
    room = {"rows": rows, "most": most, "ends": ENDS, "device": torch.device("cpu")}
    search: Search = GreedySearch(**room) if beam == 1 else BeamSearch(beam, **room)
    return Engine(model, search, rows=rows, prompt=prompt, source=max(len(job.source) for job in jobs))


def run(engine: Engine, jobs: list[Job]) -> list[list[list[int]]]:
    answers = list(engine.run(jobs))
    assert sorted(number for number, _ in answers) == list(range(len(jobs)))  # each once
    found = dict(answers)
    return texts([found[number] for number in range(len(jobs))])


def alone(model: DecoderModel, jobs: list[Job], beam: int) -> list[list[list[int]]]:
    """Each job in an engine of its own."""
    return [texts(run_jobs(model, [job], beam=beam, end_ids=ENDS))[0] for job in jobs]


@cache
def expected(name: str, beam: int) -> list[list[list[int]]]:
    return alone(model_of(name), jobs_for(name), beam)


@pytest.mark.parametrize("name", TRANSLATORS + DECODERS)
@pytest.mark.parametrize("beam", [1, 4])
def test_fault_17_any_number_of_rows_and_any_order_write_the_same(name, beam):
    model, jobs = model_of(name), jobs_for(name)
    lengths = [len(row[0]) for row in expected(name, beam)]
    assert len(set(lengths)) > 4, "texts have to leave at different times"
    for rows in (1, 3, 32):
        assert texts(run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=rows)) == expected(name, beam)
    backwards = texts(run_jobs(model, jobs[::-1], beam=beam, end_ids=ENDS, rows=3))
    assert backwards[::-1] == expected(name, beam)


@settings(max_examples=8)
@given(
    st.sampled_from(["transformer", "t5", "gpt2", "llama-window"]),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 15)), min_size=2, max_size=7),
    st.integers(1, 5),
    st.sampled_from([1, 3]),
)
def test_fault_17_any_jobs(name, sizes, rows, beam):
    model, jobs = model_of(name), jobs_for(name, sizes)
    assert texts(run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=rows)) == alone(model, jobs, beam)


@pytest.mark.parametrize("name", ["transformer", "llama-window"])
@pytest.mark.parametrize("beam", [1, 4])
def test_an_engine_runs_again_and_a_row_remembers_nothing(name, beam):
    model, jobs = model_of(name), jobs_for(name)
    engine = engine_of(model, beam, 2, jobs)
    assert run(engine, jobs) == expected(name, beam)
    assert run(engine, jobs) == expected(name, beam)
    assert run(engine, jobs[::-1]) == expected(name, beam)[::-1]


@pytest.mark.parametrize("beam", [1, 4])
def test_an_engine_runs_again_after_a_run_that_was_given_up(beam):
    model, jobs = model_of("gpt2"), jobs_for("gpt2")
    engine = engine_of(model, beam, 3, jobs)
    next(engine.run(jobs[::-1]))
    assert run(engine, jobs) == expected("gpt2", beam)


@pytest.mark.parametrize("name", ["transformer", "gpt2", "llama"])
@pytest.mark.parametrize("beam", [1, 3])
def test_watching_changes_no_token(name, beam):
    model, jobs = model_of(name), jobs_for(name)
    unwatched = run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=3)
    with watch(model, "decoder.*.attention.pattern", "decoder.*.residual_after") as seen:
        watched = run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=3)
    assert watched == unwatched
    assert any(name.endswith("pattern") for name in seen)


@pytest.mark.parametrize("name", ["t5", "llama"])
@pytest.mark.parametrize("beam", [1, 4])
def test_no_slot_is_taken_that_was_not_made_and_no_memory_is_new(name, beam):
    model, jobs = model_of(name), jobs_for(name)
    engine = engine_of(model, beam, 3, jobs)
    before = [tensor.data_ptr() for tensor in (*engine.cache.keys, *engine.cache.values, engine.search.tokens)]
    longest = max(len(job.prompt) for job in jobs) - 1 + beam * max(job.limit for job in jobs)
    assert engine.cache.max_len == longest
    for _ in engine.run(jobs):
        taken = engine.cache.lengths[: len(engine.jobs)].tolist()
        assert taken == engine.filled
        assert all(n <= longest for n in taken)
    assert before == [t.data_ptr() for t in (*engine.cache.keys, *engine.cache.values, engine.search.tokens)]
    assert (engine.jobs, engine.filled, engine.sources) == ([], [], [])


@pytest.mark.parametrize("beam", [1, 4])
def test_texts_enter_as_others_leave_and_not_before(beam):
    model, jobs = model_of("gpt2"), jobs_for("gpt2")
    taken = 0

    def queue() -> Iterator[Job]:
        nonlocal taken
        for job in jobs:
            taken += 1
            yield job

    engine, done, together = engine_of(model, beam, 3, jobs), [], []
    for number, _ in engine.run(queue()):
        done.append(number)
        together.append(taken)
        assert taken <= len(done) + 3 + 3  # a step may end three, which are told one by one
    assert taken == len(jobs)
    assert together[0] == 3
    assert done.index(3) < max(map(done.index, range(3))), "a short text that entered late overtakes a long one"


def test_what_is_done_is_told_at_once():
    model, jobs = model_of("gpt2"), jobs_for("gpt2")
    found = finished_jobs(model, jobs, end_ids=ENDS, rows=3)
    first, hypotheses = next(found)
    assert texts([hypotheses]) == alone(model, [jobs[first]], 1)
    found.close()


@pytest.mark.parametrize("beam", [1, 4])
def test_garbage_in_free_rows_and_slots_changes_nothing(beam):
    """What a row held before, or a slot nobody has written, is never looked at."""
    model, jobs = model_of("transformer"), jobs_for("transformer")
    engine = engine_of(model, beam, 3, jobs)
    for tensor in (*engine.cache.keys, *engine.cache.values, *(x for pair in engine.cache.cross for x in pair)):
        tensor.normal_(std=50.0)
    engine.search.tokens.random_(VOCAB)
    engine.ids.random_(VOCAB)
    assert run(engine, jobs) == expected("transformer", beam)
