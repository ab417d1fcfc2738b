"""Answers to clients that may leave, and answers in pieces: server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cutaway.serving.errors import ClientGone, ErrorAnswer
from cutaway.serving.logs import log_exception

R = TypeVar("R")
PING = ": ping\n\n"  # a comment: it keeps the connection alive, and clients skip it
DONE = "data: [DONE]\n\n"


async def unless_gone(request: Request, work: Coroutine[Any, Any, R]) -> R:
    """The result of some work, which is cancelled when the client leaves."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone("the client has left")
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Chunks as events. What goes wrong on the way is an event, too, since the status has been sent by then.

    `cancel` is called in any case: of a client that has left already nothing is sent, so that the chunks never begin.
    """

    def __init__(
        self, request: Request, chunks: AsyncIterator[dict[str, Any] | None], cancel: Callable[[], None]
    ) -> None:
        super().__init__(
            _events(request, chunks),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        self.cancel = cancel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]
                await super().__call__(scope, receive, send)
        finally:
            self.cancel()


async def _events(request: Request, chunks: AsyncIterator[dict[str, Any] | None]) -> AsyncIterator[str]:
    async with aclosing(chunks):  # type: ignore[type-var]
        try:
            async for chunk in chunks:
                yield PING if chunk is None else _event(chunk)
        except Exception as error:
            answer = ErrorAnswer(error, request.app.state.service.redact)
            if answer.status >= 500:
                log_exception(error, id=request.state.id)
            yield _event(answer.body)
            return
    yield DONE


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
