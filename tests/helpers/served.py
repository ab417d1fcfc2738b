"""A server with tiny models on a free port, and clients for it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from helpers.bert_tokenizer import bert_tokenizer
from helpers.text_generators import byte_level_once, speaker
from helpers.tiny_models import tiny
from helpers.translators import translator

from cutaway.decoding.engine.scheduler import Scheduler
from cutaway.serving.app import create_app
from cutaway.serving.limits import Limits
from cutaway.serving.server import InBackground, Server, listen
from cutaway.serving.service import ServedModel, Service

R = TypeVar("R")
GUARD = 120.0  # seconds after which a test hangs
WORDS = ["[UNK]", "the", "cat", "sat", "on", "a", "mat"]


def tiny_models(**changes: Any) -> list[ServedModel]:
    """A language model, a translator, an encoder and a model of pictures, with random weights."""
    words = bert_tokenizer(WORDS)
    encoder = tiny("bert", vocab_size=words.vocab_size, dtype=changes.get("dtype", speaker().dtype))
    return [
        served_model("speaker", speaker(**changes), byte_level_once()),
        served_model("translator", translator(), byte_level_once()),
        served_model("encoder", encoder, words),
        served_model("pictures", tiny("vit", dtype=encoder.dtype), None),
    ]


def served_model(name: str, model: Any, tokenizer: Any) -> ServedModel:
    return ServedModel(name, Path("/models/hidden") / name, model, tokenizer, created=1_700_000_000)


def service_of(*models: ServedModel, limits: Limits | None = None, key: str | None = None, **more: Any) -> Service:
    limits = limits or Limits()
    scheduler = Scheduler(threads=more.pop("threads", 1), most_waiting=limits.max_waiting, **more)
    service = Service(scheduler, limits, key)
    for served in models or tiny_models():
        service.add(served)
    return service


@contextmanager
def running(service: Service, **more: Any) -> Iterator[Server]:
    """A real server, in a thread of its own."""
    with InBackground(Server(create_app(service, **more), listen("127.0.0.1", 0))) as server:
        yield server


def client_of(server: Server, **more: Any) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=GUARD, trust_env=False, **more)


def ask_all(server: Server, questions: Callable[[httpx.AsyncClient], list[Awaitable[R]]]) -> list[R]:
    """The answers to questions that are asked at the same time."""

    async def ask() -> list[R]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.url, timeout=GUARD, limits=limits, trust_env=False) as client:
            return await asyncio.gather(*questions(client))

    return asyncio.run(ask())


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which has to end as it should."""
    events = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
