"""The texts of one request, whole or in pieces, while they are generated beside those of others.

    texts = await start(service, served, prompts, options, stream=True)
    async for piece in texts.pieces(): ...       # or: whole = await texts.whole()

Both ways are the same work: a stream is what is said on the way. Whoever stops listening cancels it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from cutaway.decoding.engine.engine import Job
from cutaway.decoding.engine.scheduler import Ticket
from cutaway.decoding.generate import Generated, GenerationPlan
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.token_scores import KeptScores, TokenScore
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.serving.errors import OutOfTime
from cutaway.serving.service import ServedModel, Service, finished, when_done


@dataclass(frozen=True)
class Whole:
    """One text when it is done."""

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
    """What the engine's thread tells of a text: what is said so far, and how many scores there are; or its end."""

    number: int
    said: str = ""
    n_scores: int = 0
    done: bool = False


class Texts:
    """The texts of one request. A job writes one, or with a beam the best few."""

    def __init__(self, service: Service, served: ServedModel, plan: GenerationPlan, top: int | None) -> None:
        self.service, self.served, self.plan = service, served, plan
        self.loop, self.start = asyncio.get_running_loop(), time.monotonic()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.kept = [None if top is None else KeptScores(top) for _ in plan.jobs]
        self.tickets: list[Ticket] = []

    @property
    def prompts(self) -> list[Sequence[int]]:
        """The tokens of each job's prompt; the jobs of one prompt follow each other."""
        return [job.prompt for job in self.plan.jobs]

    def submit(self, stream: bool) -> None:
        """Hands the jobs to the scheduler: all of them, or none."""
        try:
            for number in range(len(self.plan.jobs)):
                job = self._with_ears(number, stream)
                self.tickets.append(self.service.scheduler.submit(self.plan.model, job, self.plan.options.search))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Stops what still runs."""
        for ticket in self.tickets:
            ticket.cancel()

    async def whole(self) -> list[list[Whole]]:
        """The texts of each job, the best first."""
        try:
            async with asyncio.timeout(self._seconds_left()):
                for ticket in self.tickets:
                    await finished(ticket)
        except TimeoutError:
            raise self._out_of_time() from None
        finally:
            self.cancel()
        texts = await self.service.in_thread(lambda: [self._texts(number) for number in range(len(self.tickets))])
        self._count([one for each in texts for one in each])
        return texts

    async def pieces(self) -> AsyncIterator[Piece | None]:
        """What is new, as it comes; None where nothing has come for a while."""
        for number, ticket in enumerate(self.tickets):
            when_done(ticket, partial(self.events.put_nowait, Event(number, done=True)))
        n_sent, n_scores = [0] * len(self.tickets), [0] * len(self.tickets)
        latest: list[float | None] = [None] * len(self.tickets)
        wholes: list[Whole] = []
        try:
            while len(wholes) < len(self.tickets):
                event = await self._next_event()
                if event is None:
                    yield None
                    continue
                number, whole = event.number, None
                if event.done:
                    whole = (await self.service.in_thread(partial(self._texts, number)))[0]
                    wholes.append(whole)
                    said, scores = whole.generated.text, whole.scores
                else:
                    latest[number] = self._time(latest[number])
                    said, scores = event.said, self._scores(number)[: event.n_scores]
                piece = Piece(number, said[n_sent[number] :], scores[n_scores[number] :], whole)
                n_sent[number], n_scores[number] = len(said), len(scores)
                if piece.text or piece.scores or piece.whole:
                    yield piece
            self._count(wholes)
        finally:
            self.cancel()

    def _with_ears(self, number: int, stream: bool) -> Job:
        """The job as it is, or for streams and scores with ears, on the engine's thread."""
        job, kept, speller = self.plan.jobs[number], self.kept[number], self.plan.spellers[number]
        if not stream and kept is None:
            return job
        spell = job.hear

        def hear(ids: list[int]) -> bool:
            if kept is not None:
                kept.heard(ids)
            stops = spell is not None and spell(ids)
            if stream:
                event = Event(number, speller.said, 0 if kept is None else len(kept.found))
                with suppress(RuntimeError):  # the loop is closed: the server has stopped
                    self.loop.call_soon_threadsafe(self.events.put_nowait, event)
            return stops

        return replace(job, hear=hear, rules=job.rules if kept is None else (kept, *job.rules))

    async def _next_event(self) -> Event | None:
        ping, left = self.service.limits.ping_seconds, self._seconds_left()
        try:
            async with asyncio.timeout(min(ping, left)):
                return await self.events.get()
        except TimeoutError:
            if left <= ping:
                raise self._out_of_time() from None
            return None

    def _texts(self, number: int) -> list[Whole]:
        """The texts of a job that is done; its error, if it failed."""
        found = self.plan.texts_of(number, self.tickets[number].future.result())
        scores = self._scores(number)
        return [Whole(one, scores[: len(one.ids)]) for one in found[: self.plan.options.n_best]]

    def _scores(self, number: int) -> list[TokenScore]:
        kept = self.kept[number]
        return [] if kept is None else list(kept.found)

    def _seconds_left(self) -> float:
        return self.service.limits.max_seconds - (time.monotonic() - self.start)

    def _out_of_time(self) -> OutOfTime:
        return OutOfTime(f"the answer is not there after {self.service.limits.max_seconds:g} seconds")

    def _time(self, latest: float | None) -> float:
        """Measures the time since a text's last token, or since the request."""
        now, metrics, name = time.monotonic(), self.service.metrics, self.served.name
        if latest is None:
            metrics.first_token.labels(name).observe(now - self.start)
        else:
            metrics.next_token.labels(name).observe(now - latest)
        return now

    def _count(self, wholes: Sequence[Whole]) -> None:
        metrics, name = self.service.metrics, self.served.name
        metrics.whole_request.labels(name).observe(time.monotonic() - self.start)
        metrics.prompt_tokens.labels(name).inc(sum(map(len, self.prompts)))
        for one in wholes:
            metrics.generation_tokens.labels(name).inc(len(one.generated.ids))
            metrics.request_success.labels(name, one.generated.ended).inc()


async def start(
    service: Service,
    served: ServedModel,
    prompts: Sequence[str | Sequence[int]],
    options: GenerationOptions,
    *,
    stream: bool = False,
    top: int | None = None,
) -> Texts:
    """Submits texts that go on from these prompts; with `top`, the scores of their tokens are kept."""
    model, tokenizer = served.model, served.text_tokenizer()
    if not isinstance(model, DecoderModel) or isinstance(model, EncoderDecoderModel):
        raise InputError(f"model={served.name!r} is for task={served.task!r}: only a language model continues a text")
    plan = await service.in_thread(lambda: GenerationPlan(model, tokenizer, prompts, options, streaming=stream))
    texts = Texts(service, served, plan, top)
    texts.submit(stream)
    return texts
