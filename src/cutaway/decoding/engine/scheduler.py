"""Runs the jobs of many callers on a few threads, each with engines of its own: the engine of a server.

    scheduler = Scheduler()
    ticket = scheduler.submit(model, Job(prompt=[1, 5], limit=20), SearchOptions(beam=4))
    ticket.result()             # its hypotheses; `ticket.cancel()` frees its row after the current step
    scheduler.close()

A job starts at once if a row is free, and jobs that search alike share the steps of an engine; those with another beam
or another model have an engine of their own, which takes its steps in turn (`worker`). What is written for a job
depends on no other. A thread is the only one that touches its engines.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Condition, Event
from time import monotonic
from typing import Any

import torch

from cutaway.decoding.engine.row_watch import Watch, check_watch
from cutaway.decoding.engine.run import check_jobs
from cutaway.decoding.engine.threads import start_threads
from cutaway.decoding.engine.worker import CANCELLED, STOPPED, Call, Stopped, Ticket, Work, Worker
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.search.search import Hypothesis, Job
from cutaway.errors import CutawayError, InputError
from cutaway.model.model import DecoderModel

MEMORY, EACH = 4 * 2**30, 2**30  # bytes of all caches by default: at least, and for each thread
LAST = 1.0  # seconds that a thread has to end when it is told to stop
ROWS = 64  # of an engine at most


class Overloaded(CutawayError):
    """Too many jobs are waiting."""


class Cancellation(Event):
    """Cancels all tickets that were made with it when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets: list[Ticket] = []

    def add(self, tickets: Sequence[Ticket]) -> None:
        self.tickets += tickets
        if self.is_set():
            self.set()

    def set(self) -> None:
        super().set()
        for ticket in list(self.tickets):
            ticket.cancel()


class Scheduler:
    """Runs on `threads`, by default one for each core of a CPU, and one for a GPU.

    Their caches share `memory` bytes, by default 4 GiB, or 1 GiB for each thread if that is more.

    An engine decodes at most `rows` texts at a time, and at most `most_waiting` jobs wait.
    """

    def __init__(
        self, *, threads: int | None = None, memory: int | None = None, rows: int = ROWS, most_waiting: int = 1024
    ) -> None:
        n = threads or (1 if torch.cuda.is_available() else torch.get_num_threads())
        self.most_waiting = most_waiting
        self.changed = Condition()  # held to change what waits, and who takes it
        self.waiting: deque[Work | Call] = deque()
        self.closing = self.stopping = False
        memory = max(MEMORY, n * EACH) if memory is None else memory
        self.workers = [Worker(self, memory // n, rows) for _ in range(n)]
        self._threads = start_threads([worker.run for worker in self.workers], alone=n == 1)

    @property
    def n_waiting(self) -> int:
        return len(self.waiting)

    @property
    def n_running(self) -> int:
        return sum(worker.n_running for worker in self.workers)

    def submit(
        self, model: DecoderModel, job: Job, options: SearchOptions | None = None, *, watch: Watch | None = None
    ) -> Ticket:
        """Hands in a job. What cannot be done is refused at once; it is `Overloaded` if too many wait already."""
        return self.submit_all(model, [job], options, watch=watch)[0]

    def submit_all(
        self,
        model: DecoderModel,
        jobs: Sequence[Job],
        options: SearchOptions | None = None,
        *,
        watch: Watch | None = None,
    ) -> list[Ticket]:
        """The same for several jobs: all of them or none."""
        options = SearchOptions() if options is None else options
        check_jobs(model, jobs, options.beam)
        if watch is not None:
            check_watch(model, watch, jobs, options.beam)
        work = [Work.of(Ticket(self._wake), model, job, options, watch) for job in jobs]
        room = self.workers[0].memory
        if work and (needed := max(one.n_bytes for one in work)) > room:
            raise InputError(
                f"the cache of this text would take {needed:,} bytes, and each thread has {room:,}: lower the beam or "
                "the number of tokens"
            )
        return self._queue(work)

    def call(self, function: Callable[[], Any], *, first: bool = False) -> Ticket:
        """Calls a function on one of the threads, between the steps of its engines.

        `first`: before all that waits, and however much that is; for what ends the work of a job that was done.
        """
        return self._queue([Call(Ticket(self._wake), function)], first=first)[0]

    def run_jobs(
        self,
        model: DecoderModel,
        jobs: Sequence[Job],
        options: SearchOptions | None = None,
        *,
        cancellation: Cancellation | None = None,
        watch: Watch | None = None,
        on_submit: Callable[[Sequence[Ticket]], None] = lambda tickets: None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Pairs (number of the job, hypotheses), each as soon as its job is done: what `finished_jobs` gives.

        `on_submit` is called with the tickets, which hold what is watched.
        """
        tickets = self.submit_all(model, jobs, options, watch=watch)
        on_submit(tickets)
        if cancellation is not None:
            cancellation.add(tickets)
        done: SimpleQueue[int] = SimpleQueue()
        for number, ticket in enumerate(tickets):
            ticket.future.add_done_callback(lambda _, number=number: done.put(number))  # type: ignore[misc]
        try:
            for _ in tickets:
                number = done.get()
                yield number, tickets[number].result()
        finally:  # the caller may stop in between
            for ticket in tickets:
                if not ticket.future.done():
                    ticket.cancel()

    def _queue(self, work: Sequence[Work | Call], *, first: bool = False) -> list[Ticket]:
        if len(work) > self.most_waiting:
            raise InputError(
                f"{len(work):,} texts are more than the {self.most_waiting:,} that may wait: ask for fewer"
            )
        with self.changed:
            if self.closing:
                raise Stopped("the service is stopping: try again later")
            if first:
                self.waiting.extendleft(work)
            elif len(self.waiting) + len(work) > self.most_waiting:
                raise Overloaded(f"{len(self.waiting)} jobs wait, and at most {self.most_waiting} may: try again later")
            else:
                self.waiting.extend(work)
            self.changed.notify_all()
        return [one.ticket for one in work]

    def _wake(self) -> None:
        """A ticket was cancelled: it waits no longer, or its row is given up by its worker."""
        with self.changed:
            for work in [work for work in self.waiting if work.ticket.cancelled]:
                self.waiting.remove(work)
                work.ticket.finish(Stopped(CANCELLED))

    def close(self, seconds: float | None = None) -> None:
        """Takes no more work and finishes what there is; what is not done after `seconds` fails with `Stopped`.

        A thread that computes longer than that is left alone: it ends with the process.
        """
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._join(seconds)
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self._join(LAST)
        for worker in self.workers:
            worker.give_up()
        while self.waiting:
            self.waiting.popleft().ticket.finish(Stopped(STOPPED))

    def _join(self, seconds: float | None) -> None:
        end = None if seconds is None else monotonic() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - monotonic()))

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close(0.0)
