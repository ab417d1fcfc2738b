"""What every request passes on its way in, as ASGI applications around the next one.

Watched       gives it an id, counts it, logs it, and answers for exceptions that nobody else has caught
Guarded       refuses wrong hosts, foreign origins, wrong keys
Measured      refuses bodies that are too large or too slow, whatever their header says of their length
"""

import asyncio
import hmac
import re
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutaway.serving.errors import GONE, BodyTooLarge, BodyTooSlow, ForbiddenOrigin, WrongKey, answer_to
from cutaway.serving.logs import log_event, log_exception
from cutaway.serving.service import Service

LOCAL = ("localhost", "127.0.0.1", "::1")
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)  # a client's own id is taken if it looks like one


class Watched:
    """Ids, logs, counts; and no exception gets past this."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        facts: dict[str, Any] = {}  # what the route has to say for the log
        scope.setdefault("state", {}).update(id=id, facts=facts)
        start, status = time.monotonic(), 0
        unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def read() -> Message:
            nonlocal unread
            message = await receive()
            unread = message.get("more_body", False)
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["x-request-id"] = id
                if unread:  # nobody reads the rest of a body that was refused
                    answered["connection"] = "close"
            await send(message)

        self.service.n_open += 1
        try:
            await self.app(scope, read, send_with_id)
        except Exception as error:
            answer = answer_to(error, scope)
            if answer.status_code >= 500:
                log_exception(error, id=id)
            if not status:
                await answer(scope, receive, send_with_id)
        finally:
            self.service.n_open -= 1
            route = getattr(scope.get("route"), "path_format", None)  # a path itself may hold a text
            self.service.metrics.answers.labels(route or "none", str(status or GONE)).inc()
            log_event(
                "request", id=id, method=scope["method"], route=route, status=status or GONE,
                ms=round(1000 * (time.monotonic() - start), 1), **facts,
            )  # fmt: skip


class Guarded:
    """Who may ask: by host, origin and key.

    A page of another site can make a browser send requests here, or let its own name point to this machine (DNS
    rebinding): so the names of this server are known, and a request that says which page sent it must be from here.
    """

    def __init__(self, app: ASGIApp, service: Service, hosts: Collection[str] | None, origins: Collection[str]) -> None:
        self.app, self.service, self.hosts, self.origins = app, service, hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        self._check_host(headers)
        self._check_origin(scope, headers)
        self._check_key(scope, headers)
        await self.app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        if self.hosts is not None and _host(headers) not in self.hosts:
            raise ForbiddenOrigin("the request's Host is not a name of this server: start it with --allow-host NAME")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and origin != f"{scope['scheme']}://{headers.get('host')}":
            raise ForbiddenOrigin("requests from that page are refused: start the server with --allow-origin ORIGIN")

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        scope["state"]["key"] = key if scheme.lower() == "bearer" else ""
        if scope["path"] not in scope["app"].state.key_in_body:
            check_key(self.service, scope["state"]["key"])


def check_key(service: Service, *given: str) -> None:
    """Refuses keys of which none opens this server; they are compared in constant time.

    A route whose clients send the key in the body (`app.KEY_IN_BODY`) gives this one and `request.state.key`.
    """
    if service.key is not None and not any(
        hmac.compare_digest(key.encode("utf-8", "replace"), service.key.encode()) for key in given
    ):
        raise WrongKey("this server needs its key: send the header Authorization: Bearer KEY")


def _host(headers: Headers) -> str | None:
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return None


class Measured:
    """Counts the bytes of a body as they come."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.limits = app, service.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > self.limits.max_body:
            raise self._too_large()
        deadline = asyncio.get_running_loop().time() + self.limits.body_seconds
        received, whole = 0, False

        async def counted() -> Message:
            nonlocal received, whole
            if whole:  # from here on only the client's leaving is of interest
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                seconds = self.limits.body_seconds
                raise BodyTooSlow(f"the body did not arrive within {seconds:g} seconds") from None
            received += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if received > self.limits.max_body:
                raise self._too_large()
            return message

        await self.app(scope, counted, send)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body has more than {self.limits.max_body:,} bytes, the limit of this server")
