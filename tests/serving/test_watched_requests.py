"""`watch`: the inside of a request beside its answer, and its neighbours say what they say anyway."""

from typing import Any

import httpx
import pytest
import torch
from helpers.served import ask_all, chunks_of, client_of, running, served_model, service_of
from helpers.text_generators import byte_level_once, speaker

import cutaway
from cutaway.tokens import Tokenizer

PATH = "/v1/completions"
WATCH = {"alternatives": 2, "heads": ["decoder.1.attention.0"], "norms": True, "lens": 1}
QUESTION: dict[str, Any] = {"model": "speaker", "prompt": "The quick", "max_tokens": 8, "temperature": 0.0}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def server():
    backend = byte_level_once().backend
    model = served_model("speaker", speaker(), Tokenizer(backend, byte_level_once().roles, TEMPLATE))
    with running(service_of(model)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


def choices(client: httpx.Client, path: str = PATH, **question: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={**QUESTION, **question})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["choices"]
    return found


@torch.no_grad()
def test_what_is_shown_is_what_watch_sees_in_python(client):
    """The text is read again, at once."""
    (choice,) = choices(client, watch=WATCH, logprobs=0)
    shown = choice["watch"]
    front = [1, *byte_level_once().encode(QUESTION["prompt"], special=False)]
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0}
    assert choice["text"] == cutaway.generate(speaker(), byte_level_once(), QUESTION["prompt"], **options)
    ids = _ids_of(front)
    model = speaker()
    with cutaway.watch(model, "*.pattern", "*.residual_after") as seen:
        log_p = model(torch.tensor([[*front, *ids[:-1]]]))[0].log_softmax(dim=-1)
    pattern = seen["decoder.1.attention.pattern"][0, 0]
    rows = shown["heads"]["decoder.1.attention.0"]["pattern"]
    assert len(rows) == len(ids) == len(shown["tokens"])
    for place, row in enumerate(rows, len(front) - 1):
        torch.testing.assert_close(torch.tensor(row), pattern[place, : place + 1], atol=1e-5, rtol=0.0)
    for layer in range(2):
        tap = f"decoder.{layer}.residual_after"
        norms = seen[tap][0, len(front) - 1 :].norm(dim=-1)
        torch.testing.assert_close(torch.tensor(shown["norms"][tap]), norms, atol=1e-4, rtol=1e-5)
    assert [one["log_p"] for one in shown["alternatives"]] == choice["logprobs"]["token_logprobs"]
    expected = log_p[len(front) - 1 :].max(dim=-1).values.tolist()
    assert [one["top"][0]["log_p"] for one in shown["alternatives"]] == pytest.approx(expected, abs=1e-4)
    assert {len(one["top"]) for one in shown["alternatives"]} == {2}


def _ids_of(front: list[int]) -> list[int]:
    from cutaway.decoding import greedy

    ids: list[int] = greedy(speaker(), torch.tensor([front]), n=8)[0].tolist()
    return ids


@pytest.mark.parametrize("more", [{}, {"n": 2, "temperature": 1.0, "seed": 4}, {"beam": 3}], ids=str)
def test_the_last_piece_of_a_stream_shows_it(client, more):
    question = {**QUESTION, **more, "watch": WATCH}
    whole = choices(client, **question)
    chunks = chunks_of(client.post(PATH, json={**question, "stream": True}).text)
    pieces = [one for chunk in chunks for one in chunk["choices"]]
    shown = {one["index"]: one["watch"] for one in pieces if one["finish_reason"]}
    assert shown == {one["index"]: one["watch"] for one in whole}
    assert all(("watch" in one) == bool(one["finish_reason"]) for one in pieces)


def test_a_conversation_is_shown_too(client):
    content = {"messages": [{"role": "user", "content": "The quick"}], "prompt": None, "watch": WATCH}
    (choice,) = choices(client, "/v1/chat/completions", **content)
    assert len(choice["watch"]["alternatives"]) == 8


def test_a_watch_changes_no_words(client, server):
    """Neither its own nor its neighbours': with and without a watch, alone and beside watched ones."""
    plain = [choices(client, prompt=f"The {i}", max_tokens=8 + i)[0] for i in range(12)]
    questions = [
        {**QUESTION, "prompt": f"The {i}", "max_tokens": 8 + i, **({"watch": WATCH} if i % 3 == 0 else {})}
        for i in range(12)
    ]
    answers = ask_all(server, lambda client: [client.post(PATH, json=one) for one in questions])
    for i, (alone, answer) in enumerate(zip(plain, answers, strict=True)):
        (choice,) = answer.json()["choices"]
        assert ("watch" in choice) == (i % 3 == 0)
        assert {key: choice[key] for key in alone} == alone


def test_the_beam_is_shown(client):
    (choice,) = choices(client, beam=3, watch={"beam": True}, temperature=None)
    assert len(choice["watch"]["beam"]["steps"]) >= 8


@pytest.mark.parametrize(
    ("watch", "words"),
    [
        ({"lens": 21}, "watch: lens=21 must be at least 0 and at most 20"),
        ({"len": 1}, "did you mean lens?"),
        ({"alignment": True}, "watch: alignment: this model is no translator"),
        ({"beam": True}, "watch: beam: this request has no beam"),
        ({"heads": ["decoder.0.attention.9"]}, "have heads 0 … 3"),
        ({"heads": ["decoder.9.attention.0"]}, "watch: "),
        ({"heads": ["decoder.0.attention." + 5000 * "1"]}, "is not a head"),
        ({"heads": [f"decoder.{5000 * '1'}.attention.0"]}, "is not a head"),
        ([1], "watch=[1] is not a mapping"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_cannot_be_shown_is_refused(client, watch, words):
    answer = client.post(PATH, json={**QUESTION, "watch": watch})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "watch"
