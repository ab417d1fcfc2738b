"""`cutaway serve --check`: one question to each model, over HTTP, as a client asks it."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cutaway.serving.service import ServedModel, Service

SECONDS = 60.0


@dataclass(frozen=True)
class CheckedModel:
    """What became of the question to a model."""

    name: str
    route: str
    problem: str | None


def question_for(served: ServedModel) -> tuple[str, dict[str, Any]]:
    """The route and the body of a question that the model can answer."""
    if served.task == "language_model":
        return "/v1/completions", {"model": served.name, "prompt": "The", "max_tokens": 2, "temperature": 0}
    return "/v1/embeddings", {"model": served.name, "input": "a"}


def check_models(url: str, service: Service) -> Iterator[CheckedModel]:
    """Asks each model one question."""
    for served in service.models.values():
        route, question = question_for(served)
        status, answer = _post(url + route, question, service.key)
        problem = None if status == 200 else f"status {status}: {answer.get('error', {}).get('message', '')}"
        yield CheckedModel(served.name, route, problem)


def _post(url: str, question: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
    headers = {"content-type": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    try:
        connection.request("POST", parts.path, json.dumps(question), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
