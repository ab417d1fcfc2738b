"""What every request works with: the models by name, the scheduler, the limits, the key."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from cutaway.decoding.engine.scheduler import Cancellation, Scheduler
from cutaway.decoding.engine.worker import Ticket
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.serving.errors import NotReady, OutOfTime, UnknownModel
from cutaway.serving.limits import Limits
from cutaway.serving.metrics import Metrics
from cutaway.tokens import Tokenizer

R = TypeVar("R")


@dataclass(frozen=True)
class ServedModel:
    """A model that is loaded, under the name by which requests ask for it."""

    name: str
    folder: Path
    model: Model
    tokenizer: Tokenizer | None
    created: int  # seconds since 1970
    as_trained: bool = False  # `cutaway train` made it, and puts special tokens around texts by its own rule

    @property
    def task(self) -> str:
        return self.model.config.task

    def text_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(f"model={self.name!r} has no tokenizer and reads no text")
        return self.tokenizer


@dataclass
class Service:
    """The models of a server, and the state that its requests share."""

    scheduler: Scheduler
    limits: Limits = field(default_factory=Limits)
    key: str | None = None
    models: dict[str, ServedModel] = field(default_factory=dict, init=False)
    loading: bool = False
    draining: bool = False
    n_open: int = 0  # requests that are being answered

    def __post_init__(self) -> None:
        self.metrics = Metrics(lambda: self.scheduler.n_running, lambda: self.scheduler.n_waiting)
        self._threads = anyio.CapacityLimiter(self.limits.preparing)
        self._waiting_threads = anyio.CapacityLimiter(self.limits.max_waiting)
        self._places: list[tuple[str, str]] = []  # of the models on this machine, with their names, the longest first

    def add(self, served: ServedModel) -> None:
        """Models may be added while requests are answered: these read what was there before, or what is there now."""
        places = {(str(folder), served.name) for folder in (served.folder.absolute(), served.folder.resolve())}
        self._places = sorted({*self._places, *places}, key=lambda place: -len(place[0]))
        self.models = {**self.models, served.name: served}

    def model(self, name: str) -> ServedModel:
        """The model of that name. A name is a key here, never a path."""
        if name not in self.models:
            known = ", ".join(map(repr, self.models)) or "none"
            raise UnknownModel(f"model {name!r} is not served: the models here are {known}")
        return self.models[name]

    def check_ready(self) -> None:
        if self.loading:
            raise NotReady("the models are being loaded: try again soon")
        if self.draining:
            raise NotReady("the server is stopping: ask another one")

    def redact(self, message: str) -> str:
        """A message without the places where this machine keeps its models."""
        for folder, name in self._places:
            message = message.replace(folder, name)
        return message

    async def in_thread(self, function: Callable[[], R]) -> R:
        """Calls what takes a while, such as tokenizing, without holding up the other requests."""
        return await anyio.to_thread.run_sync(function, limiter=self._threads)

    async def blocking(self, function: Callable[[Cancellation], R]) -> R:
        """The same for what waits for the scheduler itself. Who stops waiting for it cancels its jobs."""
        cancellation = Cancellation()
        try:
            async with self.in_time():
                return await anyio.to_thread.run_sync(
                    function, cancellation, abandon_on_cancel=True, limiter=self._waiting_threads
                )
        finally:
            cancellation.set()

    @asynccontextmanager
    async def in_time(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Inside, an answer is given up after the time that the limits grant it, or what is left of that."""
        try:
            async with asyncio.timeout(self.limits.max_seconds if seconds is None else seconds):
                yield
        except TimeoutError:
            raise OutOfTime(f"the answer is not there after {self.limits.max_seconds:g} seconds") from None

    async def compute(self, function: Callable[[], R]) -> R:
        """Calls what needs a model, on one of the scheduler's threads."""
        async with self.in_time():
            result: R = await finished(self.scheduler.call(function))
        return result


async def finished(ticket: Ticket) -> Any:
    """The result of some work; if nobody waits for it any longer, it is cancelled."""
    done = asyncio.Event()
    when_done(ticket, done.set)
    try:
        await done.wait()
    except BaseException:
        ticket.cancel()
        raise
    return ticket.result()


def when_done(ticket: Ticket, call: Callable[[], None]) -> None:
    """Calls a function in this event loop when the work is done."""
    loop = asyncio.get_running_loop()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(call)

    ticket.future.add_done_callback(tell)


async def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _ready_service_of(request: Request) -> Service:
    service = await _service_of(request)
    service.check_ready()
    return service


ServiceHere = Annotated[Service, Depends(_service_of)]  # a parameter of routes
ReadyService = Annotated[Service, Depends(_ready_service_of)]  # the same; refuses while it loads or stops
