"""The texts of one request, whole or in pieces, while they are generated beside those of others.

    texts = await start(service, served, prompts, options, stream=True)
    async for piece in texts.pieces(): ...       # or: whole = await texts.whole()

Both ways are the same work: a stream is what is said on the way. Whoever stops listening to it calls `cancel`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.row_watch import TokenScore, Watch
from cutaway.decoding.engine.worker import Ticket
from cutaway.decoding.generate import Generated, GenerationPlan
from cutaway.decoding.options import GenerationOptions, SearchOptions
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.serving.metrics import Tally
from cutaway.serving.service import ServedModel, Service, finished, when_done


@dataclass(frozen=True)
class Whole:
    """One text when it is done, and the number of its job."""

    number: int
    generated: Generated
    scores: list[TokenScore]  # of its tokens, if they were asked for


@dataclass(frozen=True)
class Piece:
    """What is new in one text of a stream."""

    number: int
    text: str
    scores: list[TokenScore]
    whole: Whole | None = None  # in the last piece of a text


@dataclass(frozen=True)
class Event:
    """What the engine's thread tells of a text after a step, or that it is done."""

    number: int
    said: str = ""
    ids: Sequence[int] = ()
    done: bool = False


class Texts:
    """The texts of one request. A job writes one, or with a beam the best few."""

    def __init__(
        self, service: Service, served: ServedModel, plan: GenerationPlan, n_prompts: int, watch: Watch | None
    ) -> None:
        self.service, self.served, self.plan, self.n_prompts, self.watch = service, served, plan, n_prompts, watch
        self.loop, self.start = asyncio.get_running_loop(), time.monotonic()
        self.events: dict[int, Event] = {}  # the latest of each text that has not been told yet
        self.news = asyncio.Event()
        self.times: list[float | None] = [None] * len(plan.jobs)  # of the latest token of each text
        self.tickets: list[Ticket] = []

    @property
    def jobs_per_prompt(self) -> int:
        """They follow each other."""
        return len(self.plan.jobs) // self.n_prompts

    @property
    def prompts(self) -> list[Sequence[int]]:
        """The tokens of each prompt."""
        return [job.prompt for job in self.plan.jobs[:: self.jobs_per_prompt]]

    def submit(self, stream: bool) -> None:
        """Hands the jobs to the scheduler: all of them, or none."""
        jobs = [self._heard(number) for number in range(len(self.plan.jobs))] if stream else self.plan.jobs
        search = self.plan.options.search
        self.tickets = self.service.scheduler.submit_all(self.plan.model, jobs, search, watch=self.watch)

    def cancel(self) -> None:
        """Stops what still runs."""
        for ticket in self.tickets:
            ticket.cancel()

    async def whole(self) -> list[list[Whole]]:
        """The texts of each job, the best first."""
        try:
            async with self.service.in_time():
                for ticket in self.tickets:
                    await finished(ticket)
        finally:
            self.cancel()
        texts = await self.service.in_thread(lambda: [self._texts(number) for number in range(len(self.tickets))])
        self._count([one for each in texts for one in each])
        return texts

    async def pieces(self) -> AsyncIterator[Piece | None]:
        """What is new, as it comes; None where nothing has come for a while."""
        for number, ticket in enumerate(self.tickets):
            when_done(ticket, partial(self._note, Event(number, done=True)))
        n_sent, n_scored = [0] * len(self.tickets), [0] * len(self.tickets)
        wholes: list[Whole] = []
        while len(wholes) < len(self.tickets):
            event = await self._next_event()
            if event is None:
                yield None
                continue
            number, whole, said, ids = event.number, None, event.said, event.ids
            if event.done:
                whole = (await self.service.in_thread(partial(self._texts, number)))[0]
                wholes.append(whole)
                said, ids = whole.generated.text, whole.generated.ids
            piece = Piece(number, said[n_sent[number] :], self._scores(number, ids, n_scored[number]), whole)
            n_sent[number], n_scored[number] = len(said), len(ids)
            if piece.text or piece.scores or piece.whole:
                yield piece
        self._count(wholes)

    def _heard(self, number: int) -> Job:
        """The job of a stream: after each step, on the engine's thread, it tells what is said so far."""
        job, speller = self.plan.jobs[number], self.plan.spellers[number]
        hear = job.hear
        if hear is None:  # a beam says nothing before its end
            return job

        def tell(ids: list[int]) -> bool:
            stops = hear(ids)
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                self.loop.call_soon_threadsafe(self._note, Event(number, speller.said, ids))
            return stops

        return replace(job, hear=tell)

    def _note(self, event: Event) -> None:
        """The newest of a text stands for those before it: however slowly a client reads, no more is kept."""
        if not event.done:
            self.times[event.number] = self._time(self.times[event.number])
        self.events[event.number] = event
        self.news.set()

    async def _next_event(self) -> Event | None:
        if (not self.events or self._left <= 0) and not await self._some_news():
            return None
        return self.events.pop(next(iter(self.events)))

    @property
    def _left(self) -> float:
        """The seconds that are left for the answer."""
        return self.service.limits.max_seconds - (time.monotonic() - self.start)

    async def _some_news(self) -> bool:
        """Waits for events; False if there are none for a while."""
        self.news.clear()
        ping = self.service.limits.ping_seconds
        if self._left <= ping:
            async with self.service.in_time(self._left):
                return await self.news.wait()
        try:
            async with asyncio.timeout(ping):
                return await self.news.wait()
        except TimeoutError:
            return False

    def _texts(self, number: int) -> list[Whole]:
        """The texts of a job that is done; its error, if it failed."""
        found = self.plan.texts_of(number, self.tickets[number].result())[: self.plan.options.n_best]
        return [Whole(number, one, self._scores(number, one.ids)) for one in found]

    def _scores(self, number: int, ids: Sequence[int], start: int = 0) -> list[TokenScore]:
        return self.tickets[number].seen.scores(ids, start) if self.watch is not None and self.watch.top else []

    def _time(self, latest: float | None) -> float:
        """Measures the time since a text's last token, or since the request."""
        now, metrics, name = time.monotonic(), self.service.metrics, self.served.name
        if latest is None:
            metrics.first_token.labels(name).observe(now - self.start)
        else:
            metrics.next_token.labels(name).observe(now - latest)
        return now

    def _count(self, wholes: Sequence[Whole]) -> None:
        texts: list[tuple[int, str]] = [(len(one.generated.ids), one.generated.ended) for one in wholes]
        started = [ticket.started for ticket in self.tickets]
        self.service.metrics.count(self.served.name, Tally(self.start, [*map(len, self.prompts)], texts, started))


async def start(
    service: Service,
    served: ServedModel,
    prompts: Sequence[str | Sequence[int]],
    options: GenerationOptions,
    *,
    stream: bool = False,
    watch: Callable[[DecoderModel, SearchOptions], Watch | None] = lambda model, search: None,
) -> Texts:
    """Submits texts that go on from these prompts; `watch` says what the engine keeps of them."""
    model, tokenizer = served.model, served.text_tokenizer()
    if not isinstance(model, DecoderModel) or isinstance(model, EncoderDecoderModel):
        raise InputError(f"model={served.name!r} is for task={served.task!r}: only a language model continues a text")

    def make() -> GenerationPlan:
        try:
            return GenerationPlan(model, tokenizer, prompts, options, streaming=stream)
        except RecursionError:
            raise InputError("allow: this expression is too deeply nested: use fewer brackets") from None

    plan = await service.in_thread(make)
    texts = Texts(service, served, plan, len(prompts), watch(model, options.search))
    texts.submit(stream)
    return texts
