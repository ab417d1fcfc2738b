"""A stand-in for the scheduler, until the real one is merged: one thread, one text at a time."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.run import check_jobs, engine_for
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.search.search import Hypothesis
from cutaway.errors import CutawayError
from cutaway.model.model import DecoderModel


class Overloaded(CutawayError):
    """Too many jobs wait already."""


class Stopped(CutawayError):
    """The scheduler was closed before this was done."""


class Ticket:
    """Work that was submitted."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.cancelled = threading.Event()
        self.seen: dict[str, Any] = {}

    def cancel(self) -> None:
        self.cancelled.set()
        self.future.cancel()


class Scheduler:
    """Runs the jobs of many callers."""

    def __init__(self, *, threads: int | None = None, memory: int = 0, most_waiting: int = 1024) -> None:
        self.most_waiting, self.n_running = most_waiting, 0
        self._work: deque[tuple[Ticket, Callable[[], Any]]] = deque()
        self._changed, self._closed = threading.Condition(), False
        self._now: Ticket | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        return len(self._work)

    def submit(
        self, model: DecoderModel, job: Job, options: SearchOptions = SearchOptions(), *, watch: Sequence[str] = ()
    ) -> Ticket:
        check_jobs(model, [job], options.beam)
        ticket = Ticket()

        def work() -> list[Hypothesis]:
            found: list[Hypothesis] = []
            for done in engine_for(model, [job], options=options).steps([job]):
                if ticket.cancelled.is_set():
                    raise Stopped("cancelled")
                found += [one for _, its in done for one in its]
            return found

        return self._put(ticket, work)

    def call(self, function: Callable[[], Any]) -> Ticket:
        return self._put(Ticket(), function)

    def run_jobs(
        self,
        model: DecoderModel,
        jobs: Sequence[Job],
        options: SearchOptions = SearchOptions(),
        cancelled: threading.Event | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        tickets = [self.submit(model, job, options) for job in jobs]
        for number, ticket in enumerate(tickets):
            yield number, ticket.future.result()

    def close(self, seconds: float | None = None) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(seconds)
        for ticket, _ in [*self._work]:
            self._finish(ticket, error=Stopped("the server is being stopped"))
        if self._now is not None:
            self._now.cancelled.set()
            self._finish(self._now, error=Stopped("the server is being stopped"))

    def _put(self, ticket: Ticket, work: Callable[[], Any]) -> Ticket:
        with self._changed:
            if self._closed:
                raise Stopped("the server is being stopped")
            if len(self._work) >= self.most_waiting:
                raise Overloaded(f"{len(self._work):,} texts wait already: try again later")
            self._work.append((ticket, work))
            self._changed.notify_all()
        return ticket

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work or self._closed)
                if not self._work:
                    return
                ticket, work = self._work.popleft()
                self._now, self.n_running = ticket, 1
            try:
                if not ticket.future.cancelled():
                    self._finish(ticket, work())
            except BaseException as error:
                self._finish(ticket, error=error)
            self._now, self.n_running = None, 0

    def _finish(self, ticket: Ticket, result: Any = None, error: BaseException | None = None) -> None:
        try:
            if error is None:
                ticket.future.set_result(result)
            else:
                ticket.future.set_exception(error)
        except Exception:
            pass
