"""`cutaway serve --check`: one question to each model, over HTTP, as a client asks it."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cutaway.decoding import classify, fill
from cutaway.serving.languages import pairs_of
from cutaway.serving.service import ServedModel, Service

SECONDS = 60.0
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVQI12NoAAAAggCB3UNq9AAAAABJRU5ErkJggg=="  # a PNG


@dataclass(frozen=True)
class CheckedModel:
    """What became of the question to a model."""

    name: str
    route: str
    problem: str | None


def question_for(served: ServedModel) -> tuple[str, dict[str, Any]]:
    """The route and the body of a question that the model can answer."""
    asked = {"model": served.name}
    if served.task == "language_model":
        return "/v1/completions", {**asked, "prompt": "The", "max_tokens": 2, "temperature": 0}
    if served.task == "translate":
        for pair in pairs_of(served):
            return "/translate", {**asked, "q": "1984", "source": pair.source, "target": pair.target}
    if served.task in fill.TASKS:
        return "/fill", {**asked, "text": "___"}
    if served.model.config.family == "vit":
        return "/classify", {**asked, "image": PIXEL}
    if served.task == "next_sentence":
        return "/classify", {**asked, "text": [["a", "b"]]}
    if served.task in classify.TASKS:
        return "/classify", {**asked, "text": "a"}
    return "/v1/embeddings", {**asked, "input": "a"}


def check_models(url: str, service: Service) -> Iterator[CheckedModel]:
    """Asks each model one question."""
    for served in service.models.values():
        route, question = question_for(served)
        status, answer = _post(url + route, question, service.key)
        problem = None if status == 200 else f"status {status}: {answer['error']}"
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
