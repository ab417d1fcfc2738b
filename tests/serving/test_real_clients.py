"""The clients of OpenAI's API that people have, unchanged, each in an environment of its own."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers.bert_tokenizer import bert_tokenizer
from helpers.client_packages import run_client
from helpers.served import WORDS, client_of, running, served_model, service_of
from helpers.text_generators import byte_level_once, speaker
from helpers.tiny_models import tiny

import cutaway
from cutaway.serving.limits import Limits
from cutaway.tokens import Tokenizer

KEY = "secret"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server():
    words = bert_tokenizer(WORDS)
    encoder = tiny("bert", vocab_size=words.vocab_size, dtype=speaker().dtype)
    talker = Tokenizer(byte_level_once().backend, byte_level_once().roles, TEMPLATE)
    service = service_of(
        served_model("talker", speaker(max_len=200), talker),
        served_model("encoder", encoder, words),
        served_model("endless", speaker(max_len=100_000, end_ids=()), byte_level_once()),
        limits=Limits(max_seconds=1.0),
        key=KEY,
    )
    with running(service) as server:
        yield server


@pytest.fixture(scope="module")
def call(request: pytest.FixtureRequest, server: Any) -> Call:
    return partial(run_client, request.config, server.url)


@pytest.fixture(scope="module")
def expected(server) -> dict[str, Any]:
    """What Python calls say."""
    encoder = server.service.models["encoder"]
    python = {"model": speaker(max_len=200), "tokenizer": byte_level_once(), "max_tokens": 12}
    chat = {"prompt": "user: Hi\nassistant:", "temperature": 1.0, "seed": 3}
    ids = byte_level_once().encode(chat["prompt"], special=False)
    question = {"model": "talker", "prompt": ids, "max_tokens": 12, "seed": 3}
    with client_of(server, headers={"authorization": f"Bearer {KEY}"}) as client:  # without a start token, as a chat
        answer = client.post("/v1/completions", json=question).json()["choices"][0]["text"]
    return {
        "texts": cutaway.generate(prompt=["The quick", "A"], **python),
        "answer": answer,
        "vectors": cutaway.embed(encoder.model, encoder.tokenizer, ["the cat", "a mat"]),
    }


@pytest.mark.parametrize("version", ["2.54.0", "3.51.0"])
def test_openai(call, expected, version):
    found = call("openai_calls.py", f"openai=={version}")
    assert found["version"] == version
    assert found["models"] == ["talker", "encoder", "endless"]
    assert found["model"] == "talker"
    assert found["text"] == found["streamed"] == expected["texts"][0]
    assert found["usage"] == found["streamed usage"] > 12
    assert len(found["log_p"]) == found["n scores"] == 12
    assert found["answer"] == found["streamed answer"] == expected["answer"]
    assert json.loads(found["person"])["old"] in (True, False)
    assert found["person's end"] == "stop"
    for vectors in found["vectors"].values():
        np.testing.assert_array_equal(np.array(vectors, np.float32), expected["vectors"])
    assert found["unknown model"] == ["NotFoundError", 404, "model", "model_not_found", True]
    assert found["no tokens"] == ["BadRequestError", 400, "max_tokens", None, True]
    assert found["too late"] == ["InternalServerError", 504, None, "timeout", True]
    assert "after 1 seconds" in found["too late in a stream"]
    assert found["wrong key"] == "invalid_api_key"


def test_openai_does_not_try_again_what_would_take_as_long(call, server):
    """`x-should-retry: false`: otherwise it asks three times."""

    def n_late() -> float:
        with client_of(server, headers={"authorization": f"Bearer {KEY}"}) as client:
            lines = client.get("/metrics").text.splitlines()
        mark = 'cutaway:http_answers_total{route="/v1/completions",status="504"} '
        return sum(float(line.removeprefix(mark)) for line in lines if line.startswith(mark))

    before = n_late()
    call("openai_calls.py", "openai==3.51.0")
    assert n_late() == before + 1


@pytest.mark.long
def test_langchain(call, expected):
    found = call("langchain_calls.py", "langchain-openai==1.7.3")
    assert found["text"] == found["streamed"] == expected["texts"][0]
    assert found["texts"] == expected["texts"]
    assert found["answer"] == found["streamed answer"] == expected["answer"]
    np.testing.assert_array_equal(np.array(found["vectors"], np.float32), expected["vectors"])


@pytest.mark.long
def test_litellm(call, expected):
    found = call("litellm_calls.py", "litellm==1.106.2")
    assert found["answer"] == found["streamed answer"] == expected["answer"]
    np.testing.assert_array_equal(np.array(found["vectors"], np.float32), expected["vectors"])
