"""/v1/chat/completions: the model's template makes the prompt, and the rest is as with completions."""

import json
from typing import Any

import httpx
import pytest
from helpers.served import chunks_of, client_of, running, served_model, service_of
from helpers.text_generators import END, byte_level_once, speaker

import cutaway
from cutaway.tokens import Tokenizer

PATH = "/v1/chat/completions"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
PROMPT = "<sos>system: Be brief.\nuser: Hi\nassistant:"


def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level_once().backend, byte_level_once().roles, TEMPLATE)


@pytest.fixture(scope="module")
def client():
    talker = served_model("talker", speaker(max_len=600), tokenizer())
    service = service_of(talker, served_model("plain", speaker(), byte_level_once()))
    with running(service) as server, client_of(server) as client:
        yield client


def post(client: httpx.Client, expected: int = 200, **question: Any) -> Any:
    answer = client.post(PATH, json={"model": "talker", "messages": HELLO, "max_tokens": 20, **question})
    assert answer.status_code == expected, answer.text
    return answer.json()


def content(client: httpx.Client, **question: Any) -> str:
    (choice,) = post(client, **question)["choices"]
    assert choice["message"].keys() == {"role", "content", "refusal"}
    assert choice["message"]["role"] == "assistant"
    text: str = choice["message"]["content"]
    return text


def test_the_answer_continues_what_the_template_writes(client):
    ids = byte_level_once().encode(PROMPT, special=False)
    question = {"model": "talker", "prompt": ids, "max_tokens": 20, "temperature": 0.0}
    completed = client.post("/v1/completions", json=question).json()
    answered = post(client, temperature=0.0)
    assert answered["choices"][0]["message"]["content"] == completed["choices"][0]["text"]
    assert answered["usage"] == completed["usage"]
    assert answered["object"] == "chat.completion"


def test_special_tokens_are_those_of_the_template():
    assert byte_level_once().encode(PROMPT, special=False)[0] == 1


@pytest.mark.parametrize("more", [{}, {"n": 2}, {"logprobs": True, "top_logprobs": 3}, {"stop": ["a", "e"]}], ids=str)
def test_a_stream_says_what_the_whole_answer_says(client, more):
    question = {"seed": 7, **more}
    whole = post(client, **question)
    answer = client.post(
        PATH,
        json={"model": "talker", "messages": HELLO, "max_tokens": 20, "stream": True,
              "stream_options": {"include_usage": True}, **question},
    )  # fmt: skip
    *chunks, last = chunks_of(answer.text)
    assert last["usage"] == whole["usage"]
    assert {chunk["object"] for chunk in [*chunks, last]} == {"chat.completion.chunk"}
    for choice in whole["choices"]:
        pieces = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        assert pieces[0]["delta"]["role"] == "assistant"
        assert "".join(one["delta"].get("content", "") for one in pieces) == choice["message"]["content"]
        assert [one["finish_reason"] for one in pieces] == [None] * (len(pieces) - 1) + [choice["finish_reason"]]
        scores = [score for one in pieces if one["logprobs"] for score in one["logprobs"]["content"]]
        assert scores == (choice["logprobs"]["content"] if choice["logprobs"] else [])


def test_the_form_of_log_p(client):
    (choice,) = post(client, seed=1, logprobs=True, top_logprobs=2)["choices"]
    for one in choice["logprobs"]["content"]:
        assert one.keys() == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(one["top_logprobs"]) == 2
        assert one["logprob"] <= one["top_logprobs"][0]["logprob"]
    spelled = b"".join(bytes(one["bytes"]) for one in choice["logprobs"]["content"])
    assert spelled.decode(errors="replace").replace("�", "") == choice["message"]["content"].replace("�", "")


def test_the_end_token_is_no_part_of_the_message(client):
    (choice,) = post(client, temperature=0.0, logit_bias={str(END): 100}, logprobs=True)["choices"]
    assert choice["message"]["content"] == ""
    assert choice["logprobs"]["content"] == []
    assert choice["finish_reason"] == "stop"


def test_forms_of_messages_that_mean_the_same(client):
    expected = content(client, temperature=0.0)
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    assert content(client, temperature=0.0, messages=[{"role": "system", "content": parts}, HELLO[1]]) == expected
    assert content(client, temperature=0.0, messages=[{**HELLO[0], "role": "developer"}, HELLO[1]]) == expected


def test_the_limit_has_two_names(client):
    for more in ({"max_tokens": 3}, {"max_tokens": None, "max_completion_tokens": 3}, {"max_completion_tokens": 3}):
        assert post(client, temperature=0.0, **more)["usage"]["completion_tokens"] == 3


def test_without_a_limit_the_model_writes_until_it_is_full(client):
    usage = post(client, temperature=0.0, max_tokens=None, logit_bias={str(END): -100})["usage"]
    assert usage["total_tokens"] == 601  # the last token is not read any more


# --- forms of texts ---------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_kept(client, stream):
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}
    question = {"seed": 3, "max_tokens": 60, "response_format": form}
    if stream:
        answer = client.post(PATH, json={"model": "talker", "messages": HELLO, "stream": True, **question})
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks_of(answer.text))
    else:
        text = content(client, **question)
    person = json.loads(text)
    assert person.keys() == {"name", "old"}
    assert person["name"] in ("Ann", "Bob")
    assert isinstance(person["old"], bool)


def test_any_object(client):
    text = content(client, seed=3, max_tokens=100, response_format={"type": "json_object"})
    assert isinstance(json.loads(text), dict)


def test_plain_text(client):
    assert content(client, seed=3, response_format={"type": "text"}) == content(client, seed=3)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": []}, "messages", "there are none"),
    ({"messages": "Hi"}, "messages", "is not a list"),
    ({"messages": [{"content": "Hi"}]}, "messages", "messages[0]: a message has a role"),
    ({"messages": [*HELLO, {"role": "user"}]}, "messages", "messages[2]: its content is no text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}]},
        "messages",
        "'image_url'; the models here read text only",
    ),
    ({"tools": [{"type": "function"}]}, "tools", "no model here calls tools"),
    ({"top_logprobs": 2}, "top_logprobs", "goes with logprobs=true"),
    ({"logprobs": 2}, "logprobs", "logprobs=2 is not True or False"),
    ({"response_format": {"type": "yaml"}}, "response_format", "it is none of"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "it is none of"),
    ({"response_format": {"type": "json_object"}, "allow": "a+"}, "response_format", "leave out one of the two"),
    ({"model": "plain"}, "model", "has no chat template"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "max_completion_tokens=0 must be at least 1"),
]


@pytest.mark.parametrize(("question", "param", "words"), REFUSED, ids=lambda case: str(case)[:50])
def test_what_is_refused_and_why(client, question, param, words):
    error = post(client, expected=400, **question)["error"]
    assert words in error["message"]
    assert error["param"] == param


def test_a_template_that_refuses(client):
    refusing = Tokenizer(byte_level_once().backend, byte_level_once().roles, "{{ raise_exception('no system') }}")
    with running(service_of(served_model("talker", speaker(), refusing))) as server, client_of(server) as client:
        assert "no system" in post(client, expected=400)["error"]["message"]


def test_the_python_call_says_the_same(client):
    """With the prompt as a text: the template has written the start token into it."""
    text = cutaway.generate(
        speaker(max_len=600), byte_level_once(), PROMPT.removeprefix("<sos>"), max_tokens=20, temperature=1.0, seed=2
    )
    assert content(client, seed=2) == text
