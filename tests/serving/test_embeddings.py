"""/v1/embeddings, /v1/models, and what describes and counts requests."""

import base64
from dataclasses import fields
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from helpers.served import chunks_of, client_of, running, service_of, tiny_models
from helpers.text_generators import byte_level_once

import cutaway
from cutaway.decoding.options import GenerationOptions
from cutaway.serving.openai_requests import ChatRequest, CompletionRequest, EmbeddingRequest
from cutaway.serving.schemas import schema_of_options

PATH = "/v1/embeddings"
TEXTS = ["the cat sat", "a mat", "the cat sat on the mat"]


@pytest.fixture(scope="module")
def service():
    return service_of()


@pytest.fixture(scope="module")
def client(service):
    with running(service) as server, client_of(server) as client:
        yield client


def post(client: httpx.Client, expected: int = 200, **question: Any) -> Any:
    answer = client.post(PATH, json={"model": "encoder", **question})
    assert answer.status_code == expected, answer.text
    return answer.json()


def vectors(client: httpx.Client, **question: Any) -> np.ndarray:
    data = post(client, **question)["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return np.array([one["embedding"] for one in data], np.float32)


# --- embeddings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_the_vectors_are_those_of_embed(client, service, pool):
    served = service.models["encoder"]
    expected = cutaway.embed(served.model, served.tokenizer, TEXTS, pool=pool)
    np.testing.assert_array_equal(vectors(client, input=TEXTS, pool=pool), expected)


def test_both_encodings_hold_the_same_bits(client):
    coded = post(client, input=TEXTS, encoding_format="base64")["data"]
    decoded = np.stack([np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in coded])
    np.testing.assert_array_equal(decoded, vectors(client, input=TEXTS))


def test_one_text_and_a_list_of_it(client):
    np.testing.assert_array_equal(vectors(client, input=TEXTS[0]), vectors(client, input=TEXTS[:1]))


def test_tokens_are_counted(client, service):
    n = sum(len(service.models["encoder"].tokenizer.encode(text)) for text in TEXTS)
    assert post(client, input=TEXTS)["usage"] == {"prompt_tokens": n, "total_tokens": n}


def test_ids_of_a_tokenizer_that_is_named(client, service):
    ids = [service.models["encoder"].tokenizer.encode(text) for text in TEXTS]
    error = post(client, expected=400, input=ids)["error"]
    assert error["param"] == "input"
    assert "tokenizer='encoder'" in error["message"]
    assert "check_embedding_ctx_length=False" in error["message"]
    post(client, expected=400, input=ids[0], tokenizer="cl100k_base")
    np.testing.assert_array_equal(vectors(client, input=ids, tokenizer="encoder"), vectors(client, input=TEXTS))
    np.testing.assert_array_equal(vectors(client, input=ids[0], tokenizer="encoder"), vectors(client, input=TEXTS[0]))


REFUSED: list[tuple[dict[str, Any], str | None, str]] = [
    ({"input": ""}, "input", "it is empty"),
    ({"input": []}, "input", "it is empty"),
    ({"input": [[]]}, "input", "it is empty"),
    ({"input": ["a", ""]}, "input", "it is empty"),
    ({"input": [1, 2.5]}, "input", "is not a text"),
    ({"input": "a", "dimensions": 7}, "dimensions", "the vectors of this model have 24"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", "is not one of 'float', 'base64'"),
    ({"input": ["a"] * 257}, "input", "257 texts are more than the 256 of a request"),
    ({"input": "the " * 100}, None, "has 102 tokens; this model reads at most 32"),
    ({"input": [10**6], "tokenizer": "encoder"}, None, ""),
    ({"input": "a", "model": "pictures"}, "model", "has no tokenizer"),
]


@pytest.mark.parametrize(("question", "param", "words"), REFUSED, ids=lambda case: str(case)[:50])
def test_what_is_refused_and_why(client, question, param, words):
    error = post(client, expected=400, **question)["error"]
    assert words in error["message"]
    assert error["param"] == param


# --- models -----------------------------------------------------------------------------------------------------------


def test_the_models(client):
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    assert [one["id"] for one in found["data"]] == [served.name for served in tiny_models()]
    for one in found["data"]:
        assert one.keys() == {"id", "object", "created", "owned_by"}
        assert client.get(f"/v1/models/{one['id']}").json() == one
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/v1/models/../../etc/passwd").status_code == 404


# --- the description --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CompletionRequest, ChatRequest])
def test_our_options_are_described_as_they_are_in_python(kind):
    """Bounds and help have one source."""
    properties = schema_of_options(kind)["properties"]
    shared = {one.name: one for one in fields(GenerationOptions)}.keys() & properties.keys()
    assert shared > {"temperature", "top_p", "top_k", "stop", "seed", "beam", "allow", "max_tokens", "logit_bias"}
    for one in fields(GenerationOptions):
        if one.name in shared:
            described = properties[one.name]
            assert described["description"] == one.metadata["help"]
            numbers = [
                kind for kind in described.get("anyOf", [described]) if kind.get("type") in ("integer", "number")
            ]
            bounds = [one.metadata[key] for key in ("least", "above", "most")]
            for number in numbers:
                assert [number.get(key) for key in ("minimum", "exclusiveMinimum", "maximum")] == bounds


def test_every_option_of_generate_can_be_asked_for():
    asked = {one.name for one in fields(CompletionRequest)}
    assert {one.name for one in fields(GenerationOptions)} - asked == {"n_best", "rules"}  # n; for Python only


def test_the_schema_says_what_is_needed():
    schema = schema_of_options(EmbeddingRequest)
    assert schema["required"] == ["model", "input"]
    assert schema["properties"]["encoding_format"]["anyOf"][0] == {"enum": ["float", "base64"]}
    assert get_args(EmbeddingRequest.__dataclass_fields__["pool"].type) == ("mean", "first")


def test_every_route_with_a_body_describes_it(client):
    paths = client.get("/openapi.json").json()["paths"]
    bodies = {
        path: operation["requestBody"]["content"]["application/json"]["schema"]["title"]
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method == "post"
    }
    assert bodies.items() >= {
        ("/v1/completions", "CompletionRequest"),
        ("/v1/chat/completions", "ChatRequest"),
        ("/v1/embeddings", "EmbeddingRequest"),
    }


# --- counters ---------------------------------------------------------------------------------------------------------


def test_a_prompt_is_counted_once_for_its_texts():
    service = service_of()
    question = {"model": "speaker", "prompt": ["The", "A b"], "max_tokens": 5, "temperature": 1.0, "n": 4}
    with running(service) as server, client_of(server) as client:
        usage = client.post("/v1/completions", json=question).json()["usage"]
        chunks_of(client.post("/v1/completions", json={**question, "stream": True}).text)
        lines = client.get("/metrics").text.splitlines()
    n = sum(1 + len(byte_level_once().encode(prompt, special=False)) for prompt in question["prompt"])
    assert usage["prompt_tokens"] == n
    assert f'cutaway:prompt_tokens_total{{model_name="speaker"}} {2.0 * n}' in lines


def test_requests_are_counted():
    service = service_of()
    question = {"model": "speaker", "prompt": ["The", "A b"], "max_tokens": 5, "temperature": 0.0}
    with running(service) as server, client_of(server) as client:
        usage = client.post("/v1/completions", json=question).json()["usage"]
        chunks_of(client.post("/v1/completions", json={**question, "stream": True}).text)
        lines = dict(
            line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#")
        )

    def count(name: str, labels: str = 'model_name="speaker"') -> float:
        return float(lines[f"cutaway:{name}{{{labels}}}"])

    assert count("prompt_tokens_total") == 2 * usage["prompt_tokens"]
    assert count("generation_tokens_total") == 2 * usage["completion_tokens"] == 20
    assert count("request_success_total", 'finished_reason="limit",model_name="speaker"') == 4
    assert count("e2e_request_latency_seconds_count") == 2
    assert count("request_queue_time_seconds_count") == 4
    assert count("time_to_first_token_seconds_count") == 2
    assert count("inter_token_latency_seconds_count") == 8
    assert count("http_answers_total", 'route="/v1/completions",status="200"') == 2
    assert float(lines["cutaway:num_requests_running"]) == float(lines["cutaway:num_requests_waiting"]) == 0
