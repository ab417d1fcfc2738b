"""Errors as answers: a status, headers, and one form for all of OpenAI's clients.

    {"error": {"message": "model 'x' is not served: …", "type": "invalid_request_error", "param": "model", "code": …}}

What a Python call would refuse with a `CutawayError`, the server refuses with the same words and status 400. Nothing
else is told: neither paths of this machine nor what went wrong inside.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from cutaway.decoding.engine.scheduler import Overloaded
from cutaway.decoding.engine.worker import Stopped
from cutaway.errors import CutawayError, UnknownArgument

OPTION = re.compile(r"([a-z][a-z_]*)(?:\[\d+\])?[=:]|.*? has no argument '([^']*)'")  # at the start of a message
RETRY_SECONDS = "1"
GONE = 499  # the status that logs show when a client left before its answer


class RefusedRequest(CutawayError):
    """A request that is refused for another reason than its content."""

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "invalid_request_error"
    code: ClassVar[str | None] = None
    param: ClassVar[str | None] = None
    headers: ClassVar[Mapping[str, str]] = {}


class UnknownModel(RefusedRequest):
    """No model of that name is served."""

    status, code, param = 404, "model_not_found", "model"


class WrongKey(RefusedRequest):
    """A key is needed, and this is not it."""

    status, code = 401, "invalid_api_key"
    headers: ClassVar[Mapping[str, str]] = {"www-authenticate": "Bearer"}


class ForbiddenOrigin(RefusedRequest):
    """A page of somewhere else, or a name that is not this server's."""

    status, kind = 403, "permission_error"


class BodyTooLarge(RefusedRequest):
    """More bytes than the limit allows."""

    status, code = 413, "body_too_large"


class BodyTooSlow(RefusedRequest):
    """The body has not come in time."""

    status, code = 408, "body_too_slow"
    headers: ClassVar[Mapping[str, str]] = {"x-should-retry": "false"}


class NotReady(RefusedRequest):
    """The server is loading its models, or stopping."""

    status, kind, code = 503, "server_error", "not_ready"
    headers: ClassVar[Mapping[str, str]] = {"retry-after": RETRY_SECONDS}


class OutOfTime(RefusedRequest):
    """The answer took longer than the limit allows; a second try would take as long."""

    status, kind, code = 504, "server_error", "timeout"
    headers: ClassVar[Mapping[str, str]] = {"x-should-retry": "false"}


class ClientGone(RefusedRequest):
    """Nobody waits for the answer any longer; nobody reads this, either."""

    status = GONE


class ErrorAnswer:
    """What a client is told about an error: `status`, `headers`, and `body`."""

    def __init__(self, error: Exception, redact: Callable[[str], str] = str) -> None:
        self.status, kind, code, param = 400, "invalid_request_error", None, None
        self.headers: Mapping[str, str] = {}
        message = redact(str(error))
        match error:
            case RefusedRequest():
                self.status, self.headers, kind, code, param = (
                    error.status, error.headers, error.kind, error.code, error.param
                )  # fmt: skip
            case Overloaded():
                self.status, kind, code = 429, "rate_limit_error", "overloaded"
                self.headers = {"retry-after": RETRY_SECONDS}
            case Stopped():
                self.status, kind, code = 503, "server_error", "stopped"
                self.headers = {"retry-after": RETRY_SECONDS}
            case CutawayError():
                param = _param(message)
                code = "unknown_parameter" if isinstance(error, UnknownArgument) else None
            case RequestValidationError():  # of what stands in the path or the query
                first = error.errors()[0]
                param = str(first["loc"][-1])
                message = f"{param}: {first['msg']}"
            case ClientDisconnect():
                self.status, message = GONE, "the client has left"
            case HTTPException():  # no such route, or no such method
                self.status, self.headers = error.status_code, error.headers or {}
                message = str(error.detail)
            case _ if out_of_memory(error):
                self.status, kind, code = 503, "server_error", "out_of_memory"
                message = "not enough memory for this request: ask for fewer or shorter texts"
            case _:
                self.status, kind, code = 500, "server_error", "internal_error"
                message = "an error inside the server, which is logged under this answer's x-request-id"
        self.message = message
        self.body: dict[str, Any] = {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def response(self, plain: bool = False) -> JSONResponse:
        """The answer; in LibreTranslate's form if it is `plain`."""
        body = {"error": self.message} if plain else self.body
        return JSONResponse(body, self.status, dict(self.headers))


def out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error))


def answer_error(request: Request, error: Exception) -> JSONResponse:
    """What the application does with an exception of a route."""
    return answer_to(error, request.scope)


def answer_to(error: Exception, scope: Scope) -> JSONResponse:
    """The answer to a request that ended in this error."""
    state = scope["app"].state
    return ErrorAnswer(error, state.service.redact).response(plain=scope["path"] in state.plain_errors)


def _param(message: str) -> str | None:
    """The option that a message is about: messages begin with `name=value` or `name:`."""
    found = OPTION.match(message)
    return None if found is None else found[1] or found[2]
