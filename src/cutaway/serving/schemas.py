"""Requests as dataclasses of options: what a Python call refuses, the server refuses with the same words.

    @dataclass(frozen=True, kw_only=True)
    class CompletionRequest(Options):
        model: str = option(MISSING, "The name of a model.")
        top_p: float | None = same_option(GenerationOptions, "top_p")

    router = APIRouter(route_class=OptionsRoute)

    @router.post("/v1/completions")
    async def completions(asked: Annotated[CompletionRequest, Depends(body(CompletionRequest))]) -> …

A null is an absent field. An unknown field is an error that names the one that may be meant, except for those that
clients send along and that change no answer (`IGNORED`). /openapi.json describes the same dataclasses.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from fastapi import Request
from fastapi.routing import APIRoute

from cutaway.arguments import Options, check_known, checked_value
from cutaway.errors import CheckpointError, InputError
from cutaway.files import parse_json
from cutaway.serving.service import Service

R = TypeVar("R", bound=Options)
T = TypeVar("T")
LARGE = 64 << 10  # bytes of a body that are read in a thread
UNIONS = (Union, UnionType)
IGNORED = {  # about billing, storing, caching and speed, as clients of OpenAI send them
    "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
    "service_tier", "store", "user", "verbosity",
}  # fmt: skip
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def body(kind: type[R]) -> Callable[[Request], Awaitable[R]]:
    """A dependency that reads the body of a request, which is JSON, as options of this kind."""

    async def read(request: Request) -> R:
        data = await request.body()
        return await aside(request, len(data), lambda: read_options(kind, json_object(data)))

    read.reads = kind  # type: ignore[attr-defined]  # for `OptionsRoute`
    return read


async def aside(request: Request, size: int, read: Callable[[], T]) -> T:
    """What is read of so many bytes: if they are many, without holding up the other requests."""
    if size <= LARGE:
        return read()
    service: Service = request.app.state.service
    return await service.in_thread(read)


def json_object(data: bytes) -> dict[str, Any]:
    """Strict JSON: no NaN, no key twice, no half of a character."""
    try:
        return parse_json(data, "the body")
    except CheckpointError as error:
        raise InputError(error) from None


def read_options(kind: type[R], values: Mapping[str, Any], ignored: Collection[str] = IGNORED) -> R:
    """Options from the fields of a request."""
    known = {each.name: each for each in fields(kind)}
    given = {name: value for name, value in values.items() if value is not None and name not in ignored - known.keys()}
    check_known("this request", given, known.keys())
    for name, each in known.items():
        if each.default is MISSING and name not in given:
            raise InputError(f"{name}: this field is missing")
    return kind(**{name: _as_hinted(name, value, known[name].type) for name, value in given.items()})


def _as_hinted(name: str, value: Any, hint: Any) -> Any:
    """The value, if it is of its type; JSON writes 1.0 as 1, too."""
    value = checked_value(name, value, hint)
    kinds = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    return float(value) if type(value) is int and float in kinds and int not in kinds else value


# --- the description --------------------------------------------------------------------------------------------------


class OptionsRoute(APIRoute):
    """A route that says in /openapi.json what its `body` reads; a router's `route_class`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        for one in self.dependant.dependencies:
            if kind := getattr(one.call, "reads", None):
                content = {"application/json": {"schema": schema_of_options(kind)}}
                self.openapi_extra = {"requestBody": {"required": True, "content": content}}


def schema_of_options(kind: type[Options]) -> dict[str, Any]:
    """A JSON schema of the fields, with their types, bounds, defaults and help."""
    shown = {each.name: each for each in fields(kind) if schema_of(each.type) is not None}
    return {
        "title": kind.__name__,
        "type": "object",
        "properties": {name: _schema_of_field(each) for name, each in shown.items()},
        "required": [name for name, each in shown.items() if each.default is MISSING],
        "additionalProperties": False,
    }


def _schema_of_field(field: "Field[Any]") -> dict[str, Any]:
    choices = _choices(field.type)
    bounds = {"minimum": "least", "exclusiveMinimum": "above", "maximum": "most"}
    for one in choices:
        if one.get("type") in ("integer", "number"):
            one |= {name: limit for name, key in bounds.items() if (limit := field.metadata.get(key)) is not None}
    if field.default is not MISSING and {"type": "null"} not in choices:
        choices.append({"type": "null"})
    schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
    more = {} if field.default in (MISSING, None) else {"default": field.default}
    return {**schema, "description": field.metadata["help"], **more}


def _choices(hint: Any) -> list[dict[str, Any]]:
    kinds = get_args(hint) if get_origin(hint) in UNIONS else (hint,)
    return [schema for one in kinds if (schema := schema_of(one)) is not None]


def schema_of(hint: Any) -> dict[str, Any] | None:
    """A JSON schema of a type hint; None for what JSON does not have, such as a function."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in JSON_TYPES:
        return {"type": JSON_TYPES[hint]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in UNIONS:
        choices = _choices(hint)
        return {"anyOf": choices} if choices else None
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1]) if args else True}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        inner = schema_of(args[0])
        return None if inner is None else {"type": "array", "items": inner}
    return None
