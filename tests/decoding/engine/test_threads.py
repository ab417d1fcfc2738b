"""Engines side by side: what is written depends on neither their number nor on who takes which text."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers.engine_jobs import ENDS, SIZES, jobs_for, model_of, texts

from cutaway import watch
from cutaway.decoding import Engine, Job, finished_jobs, run_jobs
from cutaway.decoding.engine import run
from cutaway.decoding.engine.engine import portions
from cutaway.decoding.engine.run import JOBS_PER_CORE, n_engines
from cutaway.errors import InputError

MANY = SIZES * 3


@pytest.fixture(autouse=True)
def three_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
@pytest.mark.parametrize("beam", [1, 3])
def test_several_engines_write_what_one_writes(name: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, jobs = model_of(name), jobs_for(name, MANY)
    assert n_engines(model, jobs) == 3
    together = run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=7)
    monkeypatch.setattr(run, "JOBS_PER_CORE", len(jobs) + 1)
    assert n_engines(model, jobs) == 1
    assert texts(together) == texts(run_jobs(model, jobs, beam=beam, end_ids=ENDS, rows=2))


def test_every_text_is_told_once() -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2", MANY)
    numbers = [number for number, _ in finished_jobs(model, jobs, end_ids=ENDS)]
    assert sorted(numbers) == list(range(len(jobs)))


def test_each_engine_has_one_core_and_the_caller_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2", MANY)
    seen: list[int] = []
    step = Engine.step

    def spied(engine: Engine) -> None:
        seen.append(torch.get_num_threads())
        step(engine)

    monkeypatch.setattr(Engine, "step", spied)
    run_jobs(model, jobs, end_ids=ENDS)
    assert {*seen} == {1}
    assert torch.get_num_threads() == 3
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [3]


@pytest.mark.parametrize(("rows", "each"), [(7, {2}), (3, {1}), (2, {1}), (1, {1})])
def test_rows_are_those_of_all_engines(rows: int, each: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    begin = Engine.__init__

    def spied(engine: Engine, *given: Any, **room: Any) -> None:
        made.append(room["rows"])
        begin(engine, *given, **room)

    monkeypatch.setattr(Engine, "__init__", spied)
    run_jobs(model_of("gpt2"), jobs_for("gpt2", MANY), end_ids=ENDS, rows=rows)
    assert {*made} == each
    assert sum(made) <= rows


def test_an_error_of_one_is_everybodys_and_nobody_works_on() -> None:
    model, jobs = model_of("transformer"), jobs_for("transformer", MANY)
    jobs[20] = Job(prompt=jobs[20].prompt, source=[10**6], limit=3)  # no such word
    before = set(threading.enumerate())  # other tests' libraries may have left threads of their own
    with pytest.raises(InputError, match="token id 1000000"):
        run_jobs(model, jobs, end_ids=ENDS)
    assert set(threading.enumerate()) <= before


def test_whoever_has_heard_enough_waits_for_one_step_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    go, steps, step = threading.Event(), list[Engine](), Engine.step

    def waits(engine: Engine) -> None:
        assert go.wait(60)
        steps.append(engine)
        step(engine)

    monkeypatch.setattr(Engine, "step", waits)
    go.set()
    before = set(threading.enumerate())
    found = finished_jobs(model_of("gpt2"), jobs_for("gpt2", MANY), end_ids=ENDS, rows=3)
    next(found)
    go.clear()
    n = len(steps)
    timer = threading.Timer(0.5, go.set)  # when the others have been told
    timer.start()
    del found
    timer.join()
    assert set(threading.enumerate()) <= before
    assert len(steps) <= n + 2 * 3  # the one that went on meanwhile, and the last


def test_what_is_refused_is_refused_before_anybody_starts() -> None:
    jobs = [*jobs_for("gpt2", MANY), Job(prompt=[], limit=1)]
    with pytest.raises(InputError, match="text 28 has an empty prompt"):
        next(finished_jobs(model_of("gpt2"), jobs, end_ids=ENDS))


def test_watched_texts_and_those_that_are_listened_to_come_from_one_engine() -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2", MANY)
    with watch(model, "*pattern*"):
        assert n_engines(model, jobs) == 1
    heard = [Job(prompt=job.prompt, limit=job.limit, hear=lambda ids: False) for job in jobs]
    assert n_engines(model, heard) == 1
    assert n_engines(model, jobs[: 2 * JOBS_PER_CORE - 1]) == 1


@pytest.mark.parametrize("most", [None, 1, 7, 20])
def test_portions_are_all_rows_in_their_order_and_no_larger_than_they_may_be(most: int | None) -> None:
    lengths = [5, 9, 1, 1, 1, 30, 2, 3, 3, 3, 4]
    found = list(portions(lengths, most))
    assert [row for part in found for row in range(len(lengths))[part]] == list(range(len(lengths)))
    for part in found:
        its = lengths[part]
        assert len(its) == 1 or most is None or len(its) * max(its) <= most
    if most is None:
        assert len(found) == 1
    else:  # and none could have taken the next one in
        for part, following in pairwise(found):
            grown = lengths[part.start : following.start + 1]
            assert len(grown) * max(grown) > most
