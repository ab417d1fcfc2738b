"""The scheduler: what is written for a job depends on no other, whoever else is there, leaves, fails or looks."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from helpers.engine_jobs import ENDS, SIZES, jobs_for, model_of, texts

import cutaway
from cutaway.decoding import Cancellation, Job, Overloaded, Scheduler, Stopped, Watch, run_jobs
from cutaway.decoding.engine.worker import rounded
from cutaway.decoding.generate import GenerationPlan
from cutaway.decoding.options import GenerationOptions, SearchOptions, TranslationOptions
from cutaway.decoding.rules.allowed import Allowed
from cutaway.decoding.rules.scores import NoRepeat, Temperature
from cutaway.decoding.translate import translations
from cutaway.errors import InputError

LONG = 600.0  # seconds that a test may hang


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with Scheduler(threads=2, rows=3) as one:
        yield one


class Gate:
    """A listener that holds its engine until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, tokens: list[int]) -> bool:
        self.reached.set()
        assert self.open.wait(LONG)
        return False


@pytest.mark.parametrize("name", ["gpt2", "llama", "lstm", "transformer", "t5"])
def test_alone_is_as_among_others(name: str, scheduler: Scheduler) -> None:
    """With other beams, lengths, rules, seeds and models beside it."""
    model, jobs = model_of(name), jobs_for(name, SIZES * 2)
    kinds = [
        SearchOptions(end_ids=ENDS),
        SearchOptions(beam=3, end_ids=ENDS),
        SearchOptions(beam=2, length_penalty=0.5, end_ids=ENDS),
    ]
    sampled = [replace(job, seed=number, rules=(Temperature(1.5),)) for number, job in enumerate(jobs)]
    ruled = [replace(job, rules=(NoRepeat(2),)) for job in jobs]
    tickets = []
    for number in range(len(jobs)):
        tickets += [scheduler.submit(model, jobs[number], kind) for kind in kinds]
        tickets.append(scheduler.submit(model, sampled[number], kinds[0]))
        tickets.append(scheduler.submit(model, ruled[number], kinds[1]))
    found = [ticket.result(LONG) for ticket in tickets]
    for place, (its, options) in enumerate([*((jobs, kind) for kind in kinds), (sampled, kinds[0]), (ruled, kinds[1])]):
        alone = [run_jobs(model, [job], options=options)[0] for job in its]
        assert texts(found[place::5]) == texts(alone)


def test_callers_share_an_engine_and_its_rows(scheduler: Scheduler) -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2", SIZES * 3)
    options = SearchOptions(end_ids=ENDS)
    expected = dict(enumerate(texts(run_jobs(model, jobs, options=options))))
    answers: list[dict[int, list[list[int]]]] = []

    def caller() -> None:
        found = scheduler.run_jobs(model, jobs, options)
        answers.append({number: [one.ids for one in its] for number, its in found})

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert answers == [expected] * 4
    assert all(len(worker.lanes) <= 1 for worker in scheduler.workers)
    assert scheduler.n_running == scheduler.n_waiting == 0


def test_both_threads_work() -> None:
    gates = [Gate(), Gate()]
    with Scheduler(threads=2) as scheduler:
        tickets = [scheduler.submit(model_of("gpt2"), Job(prompt=[1], limit=3, hear=gate)) for gate in gates]
        for gate in gates:
            assert gate.reached.wait(LONG)  # each holds its thread, so that one alone would not reach the second
        for gate in gates:
            gate.open.set()
        assert all(len(ticket.result(LONG)[0].ids) == 3 for ticket in tickets)


def test_a_free_row_is_taken_at_once() -> None:
    """One job comes while another is being written: it does not wait for its end."""
    gate, model = Gate(), model_of("gpt2")
    with Scheduler(threads=1, rows=64) as scheduler:
        first = scheduler.submit(model, Job(prompt=[1, 2], limit=20, hear=gate))
        assert gate.reached.wait(LONG)
        second = scheduler.submit(model, Job(prompt=[3], limit=2))
        gate.open.set()
        assert len(second.result(LONG)[0].ids) == 2
        assert len(scheduler.workers[0].lanes) == 1
        assert len(first.result(LONG)[0].ids) == 20


def test_a_cancelled_job_stops_and_its_neighbours_stay_the_same() -> None:
    model, jobs, gate = model_of("transformer"), jobs_for("transformer"), Gate()
    options = SearchOptions(beam=3, end_ids=ENDS)
    with Scheduler(threads=1, rows=4) as scheduler:
        endless = scheduler.submit(model, replace(jobs[4], hear=gate), replace(options, end_ids=()))
        assert gate.reached.wait(LONG)
        tickets = [scheduler.submit(model, job, options) for job in jobs]
        waiting = scheduler.submit(model, jobs[0], options)
        waiting.cancel()
        tickets[2].cancel()
        endless.cancel()
        gate.open.set()
        for cancelled in (endless, waiting, tickets[2]):
            with pytest.raises(Stopped, match="this request was cancelled"):
                cancelled.result(LONG)
        kept = [number for number in range(len(jobs)) if number != 2]
        alone = run_jobs(model, [jobs[number] for number in kept], options=options)
        assert texts([tickets[number].result(LONG) for number in kept]) == texts(alone)
        assert scheduler.n_running == 0


def test_a_cancellation_stops_all_that_was_made_with_it() -> None:
    cancellation, gate = Cancellation(), Gate()
    model = model_of("gpt2")
    with Scheduler(threads=1, rows=1) as scheduler:
        jobs = [Job(prompt=[1], limit=20, hear=gate), Job(prompt=[1], limit=20)]
        found = scheduler.run_jobs(model, jobs, cancellation=cancellation)
        failed: list[BaseException] = []

        def read() -> None:
            try:
                list(found)
            except Stopped as error:
                failed.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        assert gate.reached.wait(LONG)
        cancellation.set()
        gate.open.set()
        reader.join(LONG)
        assert len(failed) == 1
        assert not any(ticket.future.exception(LONG) is None for ticket in cancellation.tickets)
        with pytest.raises(Stopped):  # what comes later is stopped, too
            list(scheduler.run_jobs(model, jobs[1:], cancellation=cancellation))


def test_a_job_that_fails_fails_alone() -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2")

    def broken(tokens: list[int]) -> bool:
        raise ValueError("a listener's own")

    nothing = Allowed(lambda tokens: [] if len(tokens) > 2 else range(20))
    with Scheduler(threads=1) as scheduler:
        heard = scheduler.submit(model, replace(jobs[4], hear=broken))
        stuck = scheduler.submit(model, replace(jobs[4], rules=(nothing,)))
        sound = [scheduler.submit(model, job) for job in jobs]
        with pytest.raises(ValueError, match="a listener's own"):
            heard.result(LONG)
        with pytest.raises(InputError, match="allow=<lambda> allows no token after 3 tokens"):
            stuck.result(LONG)
        assert texts([ticket.result(LONG) for ticket in sound]) == texts(run_jobs(model, jobs))


def test_an_engine_that_breaks_fails_its_jobs_and_the_next_ones_get_another(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gpt2")
    with Scheduler(threads=1) as scheduler:
        with monkeypatch.context() as patch:
            patch.setattr("cutaway.decoding.engine.engine.Engine.step", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                scheduler.submit(model, Job(prompt=[1], limit=3)).result(LONG)
        assert len(scheduler.submit(model, Job(prompt=[1], limit=3)).result(LONG)[0].ids) == 3


def test_what_cannot_be_done_is_refused_at_once(scheduler: Scheduler) -> None:
    model = model_of("gpt2")
    with pytest.raises(InputError, match="fit into max_len"):
        scheduler.submit(model, Job(prompt=[1], limit=10**6))
    with pytest.raises(InputError, match="no tap matches"):
        scheduler.submit(model, Job(prompt=[1], limit=2), watch=Watch(taps=["decoder.0.nothing"]))
    with Scheduler(threads=1, memory=100) as small, pytest.raises(InputError, match="each thread has 100"):
        small.submit(model, Job(prompt=[1], limit=2))


def test_too_many_are_refused_and_the_others_done() -> None:
    gate, model = Gate(), model_of("gpt2")
    with Scheduler(threads=1, rows=1, most_waiting=2) as scheduler:
        running = scheduler.submit(model, Job(prompt=[1], limit=2, hear=gate))
        assert gate.reached.wait(LONG)
        waiting = [scheduler.submit(model, Job(prompt=[1], limit=2)) for _ in range(2)]
        with pytest.raises(Overloaded, match="2 jobs wait, and at most 2 may"):
            scheduler.submit(model, Job(prompt=[1], limit=2))
        waiting[0].cancel()  # makes room
        again = scheduler.submit(model, Job(prompt=[1], limit=2))
        gate.open.set()
        assert all(ticket.result(LONG) for ticket in (running, waiting[1], again))


def test_more_than_may_ever_wait_is_no_matter_of_time() -> None:
    with Scheduler(threads=1, most_waiting=3) as small, pytest.raises(InputError, match="4 texts are more than the 3"):
        small.submit_all(model_of("gpt2"), jobs_for("gpt2")[:4])


def test_what_ends_a_job_comes_first_and_is_never_too_much() -> None:
    gate, order = Gate(), []
    with Scheduler(threads=1, rows=1, most_waiting=1) as scheduler:
        running = scheduler.submit(model_of("gpt2"), Job(prompt=[1], limit=2, hear=gate))
        assert gate.reached.wait(LONG)
        later = scheduler.call(lambda: order.append("later"))
        first = scheduler.call(lambda: order.append("first"), first=True)
        gate.open.set()
        assert [ticket.result(LONG) for ticket in (first, later)] == [None, None]
        assert running.result(LONG)
    assert order == ["first", "later"]


def test_a_cancelled_call_is_not_made() -> None:
    """Neither while it waits nor when its thread has taken it already, behind another call."""
    gate, called, started, ends = Gate(), [], threading.Event(), threading.Event()
    with Scheduler(threads=1) as scheduler:
        scheduler.submit(model_of("gpt2"), Job(prompt=[1], limit=2, hear=gate))
        assert gate.reached.wait(LONG)
        waiting = scheduler.call(lambda: called.append("waiting"))
        waiting.cancel()
        scheduler.call(lambda: (started.set(), ends.wait(LONG)))
        taken = scheduler.call(lambda: called.append("taken"))
        gate.open.set()
        assert started.wait(LONG)
        assert scheduler.n_waiting == 0
        taken.cancel()
        ends.set()
        for ticket in (waiting, taken):
            with pytest.raises(Stopped, match="this request was cancelled"):
                ticket.result(LONG)
    assert not called


def test_a_thread_that_does_not_end_holds_nobody_up() -> None:
    ends, started = threading.Event(), threading.Event()
    scheduler = Scheduler(threads=1)
    ticket = scheduler.call(lambda: (started.set(), ends.wait(LONG)))
    assert started.wait(LONG)
    scheduler.close(0.0)  # returns, though the call goes on
    with pytest.raises(Stopped, match="the service has stopped"):
        ticket.result(30.0)
    ends.set()


def test_closing_finishes_what_was_handed_in() -> None:
    model, jobs = model_of("gpt2"), jobs_for("gpt2", SIZES * 2)
    scheduler = Scheduler(threads=2, rows=2)
    tickets = scheduler.submit_all(model, jobs)
    scheduler.close()
    assert texts([ticket.result(0.0) for ticket in tickets]) == texts(run_jobs(model, jobs))
    with pytest.raises(Stopped, match="stopping"):
        scheduler.submit(model, jobs[0])


def test_closing_with_a_limit_gives_up_what_is_not_done() -> None:
    gate, model = Gate(), model_of("gpt2")
    scheduler = Scheduler(threads=1, rows=1)
    running = scheduler.submit(model, Job(prompt=[1], limit=20, hear=gate))
    assert gate.reached.wait(LONG)
    waiting = scheduler.submit(model, Job(prompt=[1], limit=2))
    closing = threading.Thread(target=scheduler.close, args=(0.0,))
    closing.start()
    while not scheduler.stopping:
        threading.Event().wait(0.001)
    gate.open.set()
    closing.join(LONG)
    for ticket in (running, waiting):
        with pytest.raises(Stopped, match="the service has stopped"):
            ticket.result(LONG)


def test_other_work_runs_between_the_steps(scheduler: Scheduler) -> None:
    calls = [scheduler.call(lambda number=number: number**2) for number in range(20)]  # type: ignore[misc]
    assert [ticket.result(LONG) for ticket in calls] == [number**2 for number in range(20)]
    with pytest.raises(ZeroDivisionError):
        scheduler.call(lambda: 1 / 0).result(LONG)


def test_idle_engines_make_room_for_others() -> None:
    model, jobs = model_of("transformer"), jobs_for("transformer")
    with Scheduler(threads=1, memory=300_000) as scheduler:
        for beam in (1, 2, 3, 4, 1):
            options = SearchOptions(beam=beam, end_ids=ENDS)
            found = [ticket.result(LONG) for ticket in scheduler.submit_all(model, jobs, options)]
            assert texts(found) == texts(run_jobs(model, jobs, options=options))
            assert sum(lane.n_bytes for lane in scheduler.workers[0].lanes) <= 300_000


def test_engines_have_room_for_similar_lengths() -> None:
    assert [rounded(n) for n in (0, 1, 64, 65, 256, 1000, 1025, 2049)] == [0, 64, 64, 256, 256, 1024, 2048, 3072]


def test_each_thread_computes_on_one_core_and_the_caller_keeps_all() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with Scheduler(threads=2) as scheduler:
            assert {scheduler.call(torch.get_num_threads).result(LONG) for _ in range(6)} == {1}
        with Scheduler(threads=1) as scheduler:
            assert scheduler.call(torch.get_num_threads).result(LONG) == 3
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_texts_are_the_same_through_the_scheduler(scheduler: Scheduler) -> None:
    """Translations, with terms too, and generated texts: what a server answers is what Python and commands give."""
    model, tokenizer = cutaway.load("en-de"), cutaway.load_tokenizer("en-de")
    texts = ["I ate an apple. The dog barks.", "Where is the station?", "", "The dog sees the cat."]
    for more in ({}, {"terms": {"dog": "Rüde"}}, {"beam": 2, "n_best": 2}):
        options = TranslationOptions(to="de", **more)
        here = translations(model, tokenizer, texts, options=options)
        there = translations(model, tokenizer, texts, run=scheduler.run_jobs, options=options)
        assert [[one.text for one in its.n_best] for its in there] == [[one.text for one in its.n_best] for its in here]
    model, tokenizer = cutaway.load("books"), cutaway.load_tokenizer("books")
    prompts = ["The ship", "She said that"]
    for more in ({}, {"temperature": 0.9, "n_best": 2}, {"beam": 3, "n_best": 2}, {"stop": ["the"]}):
        options = GenerationOptions(max_tokens=12, **more)
        plan = GenerationPlan(model, tokenizer, prompts, options)
        tickets = [scheduler.submit(model, job, options.search) for job in plan.jobs]
        there = [[one.text for one in each] for each in plan.texts([ticket.result(LONG) for ticket in tickets])]
        here = cutaway.generate(model, tokenizer, prompts, options=options)
        assert there == [[one] if isinstance(one, str) else one for one in here]
