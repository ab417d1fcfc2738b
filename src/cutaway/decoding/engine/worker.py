"""One thread of the scheduler: it takes work from the queue, and steps with each of its engines in turn.

A *lane* is an engine and the work in its rows. A lane is made for the first job of its kind and size, stays for the
next ones, and goes when its memory is wanted for another kind.
"""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any

from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.row_watch import RowWatch, SeenInSteps, Watch
from cutaway.decoding.engine.run import EngineSize, SearchKind, row_bytes
from cutaway.decoding.options import SearchOptions
from cutaway.decoding.search.search import Job
from cutaway.errors import CutawayError
from cutaway.model.model import DecoderModel

if TYPE_CHECKING:
    from cutaway.decoding.engine.scheduler import Scheduler

SIZES = (
    64,
    256,
    1024,
)  # the room of engines for prompts, sources and new tokens; larger ones are multiples of the last
CANCELLED, STOPPED = "this request was cancelled", "the service has stopped"


class Stopped(CutawayError):
    """The job was cancelled, or the scheduler is closing."""


class Ticket:
    """Work that was handed in. `seen` is what was watched, `started` when it left the queue, by `time.monotonic`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # from now on only `cancel` below can stop it
        self.seen = SeenInSteps()
        self.cancelled = False
        self.started: float | None = None
        self.error: BaseException | None = None  # of its listener
        self._wake = wake

    def result(self, timeout: float | None = None) -> Any:
        return self.future.result(timeout)

    def cancel(self) -> None:
        """Gives the work up; its result is the error `Stopped`. What is done stays as it is."""
        self.cancelled = True
        self._wake()

    def finish(self, result: Any) -> None:
        """The result, or the error in its place; only the first one counts."""
        with suppress(InvalidStateError):
            if isinstance(error := self.error or result, BaseException):
                self.future.set_exception(error)
            else:
                self.future.set_result(result)


@dataclass(frozen=True, eq=False)
class Call:
    """A function to call."""

    ticket: Ticket
    function: Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Work:
    """A job, with all that an engine has to know."""

    ticket: Ticket
    model: DecoderModel
    job: Job
    kind: SearchKind
    size: EngineSize  # the room that an engine needs to have for it
    watch: Watch | None

    @classmethod
    def of(cls, ticket: Ticket, model: DecoderModel, job: Job, options: SearchOptions, watch: Watch | None) -> "Work":
        kind = SearchKind.of(model, options, sampled=job.seed is not None)
        most, prompt, source = (rounded(n) for n in (job.limit, len(job.prompt), len(job.source)))
        if model.max_len is not None:
            most, prompt = min(most, model.max_len), min(prompt, model.max_len)
        size = EngineSize(rows=1, most=most, prompt=prompt, source=source)
        return cls(ticket, model, _with_safe_listener(job, ticket), kind, size, watch)

    @property
    def n_bytes(self) -> int:
        """What its row of an engine takes at most."""
        return row_bytes(self.model, self.kind, self.size)


def _with_safe_listener(job: Job, ticket: Ticket) -> Job:
    """The same job, whose listener ends it with its own error, not the others of its engine."""
    hear = job.hear
    if hear is None:
        return job

    def heard(tokens: list[int]) -> bool:
        try:
            return hear(tokens)
        except BaseException as error:
            ticket.error = error
            return True

    return replace(job, hear=heard)


def rounded(n: int) -> int:
    """The next size of an engine's room, so that jobs of similar lengths share one."""
    return next((size for size in SIZES if n <= size), -(-n // SIZES[-1]) * SIZES[-1]) if n else 0


@dataclass(eq=False)
class Lane:
    """An engine, made when the first job enters, and the work in its rows, by the numbers of its jobs."""

    model: DecoderModel
    kind: SearchKind
    size: EngineSize
    n_bytes: int
    work: dict[int, Work] = field(default_factory=dict)
    entering: list[int] = field(default_factory=list)  # what has a row, but is not in the engine yet
    engine: Engine | None = None
    watch: RowWatch | None = None

    @property
    def free(self) -> int:
        return self.size.rows - len(self.work)

    def takes(self, work: Work) -> bool:
        """Whether a job of this kind and size can be done here."""
        alike = self.model is work.model and self.kind == work.kind
        return alike and self.size.holds(replace(work.size, rows=self.size.rows))

    def open_to(self, n_waiting: int) -> bool:
        """Whether jobs may enter now. Where many wait they enter together: to read many costs little more than one."""
        if not self.free:
            return False
        return not self.work or bool(self.entering) or self.free >= min(self.size.rows // 4, n_waiting)

    def step(self) -> None:
        """New jobs enter, cancelled ones are dropped, all others get a token, and what is done is told."""
        if self.engine is None or self.watch is None:
            self.engine = self.kind.engine(self.model, self.size)
            self.watch = RowWatch(self.engine)
        self._enter(self.engine, self.watch)
        self._drop(self.engine)
        if not self.work:
            return
        by_row = {row: self.work[number] for row, number in enumerate(self.engine.jobs)}
        watched = {row: (work.watch, work.ticket.seen) for row, work in by_row.items() if work.watch is not None}
        if watched:
            with self.watch.step(watched):
                self.engine.step()
        else:
            self.engine.step()
        for number, found in self.engine.leave():
            self.work.pop(number).ticket.finish(found)

    def _enter(self, engine: Engine, watch: RowWatch) -> None:
        """Jobs that are watched enter one by one."""
        entering, self.entering = self.entering, []
        engine.enter([(number, self.work[number].job) for number in entering if self.work[number].watch is None])
        for number in entering:
            work = self.work[number]
            if work.watch is not None:
                with watch.reading(work.watch, work.ticket.seen):
                    engine.enter([(number, work.job)])

    def _drop(self, engine: Engine) -> None:
        gone = [number for number, work in self.work.items() if work.ticket.cancelled]
        engine.drop(gone)
        for number in gone:
            self.work.pop(number).ticket.finish(Stopped(CANCELLED))

    def fail(self, error: BaseException) -> None:
        for work in self.work.values():
            work.ticket.finish(error)
        self.work.clear()


class Worker:
    """A thread's part of the scheduler. Its lanes' work and its calls change only while the scheduler is locked, or in
    its own thread."""

    def __init__(self, scheduler: "Scheduler", memory: int, rows: int) -> None:
        self.scheduler, self.memory, self.rows = scheduler, memory, rows
        self.lanes: list[Lane] = []
        self.calls: list[Call] = []
        self._numbers = count()

    @property
    def n_running(self) -> int:
        return sum(len(lane.work) for lane in self.lanes) + len(self.calls)

    def run(self) -> None:
        while self._has_work():
            while self.calls:
                self._call(self.calls[0])
                self.calls.pop(0)
            for lane in [lane for lane in self.lanes if lane.work]:
                try:
                    lane.step()
                except BaseException as error:  # of the engine as a whole: nobody may wait for ever
                    self.lanes.remove(lane)
                    lane.fail(error)

    def _has_work(self) -> bool:
        """Takes work, or waits for it; False when all is done, or has to stop."""
        scheduler = self.scheduler
        with scheduler.changed:
            while not scheduler.stopping:
                self._take()
                if self.n_running:
                    return True
                if scheduler.closing and not scheduler.waiting:
                    return False
                scheduler.changed.wait()
        for lane in self.lanes:
            lane.fail(Stopped(STOPPED))
        return False

    def give_up(self) -> None:
        """Whoever waits for this thread waits no longer."""
        for lane in self.lanes:
            for work in list(lane.work.values()):
                work.ticket.finish(Stopped(STOPPED))
        for call in list(self.calls):
            call.ticket.finish(Stopped(STOPPED))

    def _call(self, call: Call) -> None:
        if call.ticket.cancelled:
            return call.ticket.finish(Stopped(CANCELLED))
        try:
            call.ticket.finish(call.function())
        except BaseException as error:
            call.ticket.finish(error)

    def _take(self) -> None:
        """Takes its share from the front of the queue, as far as there is room."""
        waiting = self.scheduler.waiting
        while waiting:
            work = waiting[0]
            share = ceil((self.scheduler.n_running + len(waiting)) / len(self.scheduler.workers))
            if self.n_running >= share:
                return
            if isinstance(work, Call):
                self.calls.append(work)
            elif (lane := self._lane_for(work)) is None:
                return
            else:
                number = next(self._numbers)
                lane.work[number] = work
                lane.entering.append(number)
            work.ticket.started = monotonic()
            waiting.popleft()

    def _lane_for(self, work: Work) -> Lane | None:
        """A lane that the job can enter now: the busiest, or a new one; None if it has to wait."""
        fitting = [lane for lane in self.lanes if lane.takes(work)]
        if fitting:
            lane = min(fitting, key=lambda lane: (not lane.free, -len(lane.work), lane.n_bytes))
            return lane if lane.open_to(len(self.scheduler.waiting)) else None
        while (used := sum(lane.n_bytes for lane in self.lanes)) + work.n_bytes > self.memory:
            idle = next((lane for lane in self.lanes if not lane.work), None)
            if idle is None:
                return None
            self.lanes.remove(idle)
        rows = max(1, min(self.rows, (self.memory - used) // 2 // work.n_bytes))  # half is left to the next kind
        self.lanes.append(Lane(work.model, work.kind, replace(work.size, rows=rows), rows * work.n_bytes))
        return self.lanes[-1]
