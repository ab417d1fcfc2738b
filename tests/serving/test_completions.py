"""/v1/completions: what it writes is what `generate` writes, whole or in pieces, alone or among others."""

import math
from typing import Any

import httpx
import pytest
import torch
from helpers.served import ask_all, chunks_of, client_of, running, service_of
from helpers.text_generators import END, START, byte_level_once, speaker

import cutaway
from cutaway.decoding.generate import write_texts
from cutaway.decoding.options import GenerationOptions

PATH = "/v1/completions"
PROMPT = "The quick brown"


@pytest.fixture(scope="module")
def client():
    with running(service_of()) as server, client_of(server) as client:
        yield client


def post(client: httpx.Client, expected: int = 200, **question: Any) -> Any:
    answer = client.post(PATH, json={"model": "speaker", "prompt": PROMPT, **question})
    assert answer.status_code == expected, answer.text
    return answer.json()


def texts(client: httpx.Client, **question: Any) -> list[str]:
    return [choice["text"] for choice in post(client, **question)["choices"]]


def streamed(client: httpx.Client, **question: Any) -> list[dict[str, Any]]:
    answer = client.post(PATH, json={"model": "speaker", "prompt": PROMPT, "stream": True, **question})
    assert answer.headers["content-type"].startswith("text/event-stream")
    return chunks_of(answer.text)


def joined(chunks: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    """The choices that the pieces of a stream make together."""
    choices: list[dict[str, Any]] = [
        {"index": i, "text": "", "logprobs": None, "finish_reason": None} for i in range(n)
    ]
    for chunk in chunks:
        for piece in chunk["choices"]:
            choice = choices[piece["index"]]
            assert choice["finish_reason"] is None, "a piece behind the last one"
            choice["text"] += piece["text"]
            choice["finish_reason"] = piece["finish_reason"]
            if piece["logprobs"] is not None:
                choice["logprobs"] = choice["logprobs"] or {name: [] for name in piece["logprobs"]}
                for name, values in piece["logprobs"].items():
                    choice["logprobs"][name] += values
    return choices


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0, "max_tokens": 20},
    {"temperature": 0.9, "seed": 7, "max_tokens": 20},
    {"temperature": 1.2, "seed": 3, "max_tokens": 12, "top_p": 0.8, "top_k": 30, "min_p": 0.01},
    {"temperature": 0.0, "max_tokens": 20, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 0.0, "max_tokens": 20, "repetition_penalty": 1.3, "no_repeat_ngram": 2, "min_tokens": 4},
    {"temperature": 0.0, "max_tokens": 9, "bad_words": ["e", "a"]},
    {"temperature": 0.0, "max_tokens": 20, "allow": "[a-z]{3,9}"},
    {"beam": 3, "max_tokens": 12},
    {"temperature": 0.0, "max_tokens": 40, "stop": ["t", "in"]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_text_is_that_of_generate(client, options):
    python = {"temperature": 0.0, **options}
    expected = cutaway.generate(speaker(), byte_level_once(), PROMPT, **python)
    assert texts(client, **options) == [expected]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_stream_says_what_the_whole_answer_says(client, options):
    options = {**options, "logprobs": 2, "echo": True}
    whole = post(client, **options)["choices"]
    assert joined(streamed(client, **options), 1) == whole


def test_several_streams_in_one(client):
    options = {"prompt": [PROMPT, "A"], "n": 3, "seed": 5, "max_tokens": 11}
    whole = post(client, **options)
    chunks = streamed(client, **options, stream_options={"include_usage": True})
    assert joined(chunks[:-1], 6) == whole["choices"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}


def test_alone_and_among_others(client):
    """Each of 64 requests, with other lengths, rules, seeds and beams beside it, says what it says alone."""
    questions = [
        {"model": "speaker", "prompt": f"{PROMPT} {i}", **OPTIONS[i % len(OPTIONS)], "max_tokens": 9 + i % 13}
        for i in range(64)
    ]
    with running(service_of(threads=2)) as server:
        among = ask_all(server, lambda client: [client.post(PATH, json=one) for one in questions])
    assert [answer.status_code for answer in among] == [200] * 64
    for question, answer in zip(questions, among, strict=True):
        assert answer.json()["choices"] == client.post(PATH, json=question).json()["choices"]


def test_the_seconds_text_of_a_seed_is_that_of_the_next(client):
    both = texts(client, n=2, seed=4)
    assert both == texts(client, seed=4) + texts(client, seed=5)
    assert both[0] != both[1]


def test_without_a_seed_texts_differ(client):
    """The same prompt twice in a request, too."""
    assert len({*texts(client, prompt=[PROMPT] * 4, max_tokens=30)}) == 4


def test_the_temperature_is_one_by_default(client):
    assert texts(client, seed=9) == texts(client, seed=9, temperature=1) != texts(client, seed=9, temperature=0.0)


def test_best_of_gives_the_likeliest_first(client):
    options = GenerationOptions(max_tokens=16, temperature=1.0, n_best=5, seed=12)
    (found,) = write_texts(speaker(), byte_level_once(), [PROMPT], options)
    likeliest = sorted(found, key=lambda one: -one.score)
    assert likeliest[:2] != found[:2]
    answer = post(client, n=2, best_of=5, seed=12)
    assert [choice["text"] for choice in answer["choices"]] == [one.text for one in likeliest[:2]]
    assert answer["usage"]["completion_tokens"] == sum(len(one.ids) for one in found)


def test_a_beam_gives_its_best_texts(client):
    expected = cutaway.generate(speaker(), byte_level_once(), PROMPT, beam=4, n_best=3, max_tokens=9)
    assert texts(client, beam=4, n=3, max_tokens=9) == expected


def test_prompts_as_texts_and_as_ids(client):
    first, second = ([START, *byte_level_once().encode(text, special=False)] for text in (PROMPT, "A"))
    expected = texts(client, prompt=[PROMPT, "A"], temperature=0.0)
    assert texts(client, prompt=[first, second], temperature=0.0) == expected
    assert texts(client, prompt=first, temperature=0.0) == expected[:1]
    assert texts(client, prompt="A", temperature=0.0) == expected[1:]


def test_a_bias_forbids_or_forces_a_token(client):
    letter = byte_level_once().encode("q", special=False)
    assert texts(client, temperature=0.0, logit_bias={str(letter[0]): 100}, max_tokens=3) == ["qqq"]
    (plain,) = texts(client, temperature=0.0, max_tokens=9, allow="[a-z]+")
    first = byte_level_once().encode(plain, special=False)[0]
    (other,) = texts(client, temperature=0.0, max_tokens=9, allow="[a-z]+", logit_bias={str(first): -100})
    assert other[0] != plain[0]


def test_nulls_are_absent_fields(client):
    nulls = {
        "logprobs": None, "seed": None, "n": None, "stop": None, "best_of": None, "stream": None, "suffix": None,
        "logit_bias": None, "user": None, "stream_options": None, "top_p": None, "presence_penalty": None,
    }  # fmt: skip
    assert texts(client, temperature=0.0, **nulls) == texts(client, temperature=0.0)


def test_what_clients_send_along_changes_nothing(client):
    more = {"user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"}
    assert texts(client, temperature=0.0, **more) == texts(client, temperature=0.0)


def test_why_a_text_ended(client):
    assert [one["finish_reason"] for one in post(client, temperature=0.0)["choices"]] == ["length"]
    assert [one["finish_reason"] for one in post(client, temperature=0.0, stop=["e", "a", "t"])["choices"]] == ["stop"]
    full = post(client, temperature=0.0, max_tokens=500)  # of a model that reads 96 tokens
    assert full["choices"][0]["finish_reason"] == "length"
    end = post(client, temperature=0.0, logit_bias={str(END): 100})
    assert end["choices"][0]["finish_reason"] == "stop"
    assert end["choices"][0]["text"] == ""
    assert end["usage"]["completion_tokens"] == 1


# --- log p ------------------------------------------------------------------------------------------------------------


def test_echo_scores_every_token_as_the_model_does(client):
    ids = [START, *byte_level_once().encode(PROMPT, special=False)]
    (choice,) = post(client, echo=True, logprobs=3, max_tokens=1, temperature=0.0)["choices"]
    scores = choice["logprobs"]
    log_p = speaker()(torch.tensor([ids]))[0].detach().log_softmax(dim=-1)
    assert len(scores["tokens"]) == len(ids) + 1
    assert scores["token_logprobs"][0] is None
    assert scores["top_logprobs"][0] is None
    expected = [*log_p[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist(), float(log_p[-1].max())]
    assert scores["token_logprobs"][1:] == pytest.approx(expected, abs=1e-5)
    for own, top, row in zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:], log_p, strict=False):
        assert len(top) in (3, 4)
        assert max(top.values()) == pytest.approx(float(row.max()), abs=1e-5)
        assert own in top.values()  # exactly, as lm-eval compares them


def test_a_greedy_text_is_the_likeliest_exactly(client):
    """lm-eval tests equality with the largest of `top_logprobs`, with the default temperature of 0 and 1 of them."""
    (choice,) = post(client, temperature=0.0, logprobs=1, max_tokens=30)["choices"]
    scores = choice["logprobs"]
    assert [max(top.values()) for top in scores["top_logprobs"]] == scores["token_logprobs"]
    assert all(len(top) == 1 for top in scores["top_logprobs"])
    (echoed,) = post(client, prompt=PROMPT + choice["text"], echo=True, logprobs=1, max_tokens=1)["choices"]
    own, top = echoed["logprobs"]["token_logprobs"], echoed["logprobs"]["top_logprobs"]
    greedy = [value == max(likeliest.values()) for value, likeliest in zip(own[1:], top[1:], strict=True)]
    assert len(own) >= len(greedy) >= 30


def test_a_sampled_token_stands_among_the_likeliest(client):
    (choice,) = post(client, seed=3, logprobs=2, max_tokens=40)["choices"]
    scores = choice["logprobs"]
    assert {len(top) for top in scores["top_logprobs"]} == {2, 3}
    for name, own, top in zip(scores["tokens"], scores["token_logprobs"], scores["top_logprobs"], strict=True):
        assert top[name] == own


def test_offsets_are_places_in_the_text(client):
    (choice,) = post(client, prompt="naïve café", echo=True, logprobs=0, temperature=0.0, max_tokens=1)["choices"]
    scores, text = choice["logprobs"], choice["text"]
    for name, start in zip(scores["tokens"][1:-1], scores["text_offset"][1:-1], strict=True):
        assert name.startswith("bytes:") or text[start:].startswith(name)
    assert scores["tokens"][0] == "<sos>"
    assert scores["text_offset"][:2] == [0, 0]


def test_scores_are_finite_numbers(client):
    (choice,) = post(client, temperature=0.0, logprobs=20, beam=3, max_tokens=9)["choices"]
    assert all(math.isfinite(value) for top in choice["logprobs"]["top_logprobs"] for value in top.values())


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 1_000_000}, "n", "n=1,000,000 must be at least 1 and at most 1,024"),
    ({"best_of": 1_000_000}, "n", "n=1000000 for 1 prompts is more than the 256 texts"),
    ({"n": 1000}, "n", "n=1000 for 1 prompts is more than the 256 texts"),
    ({"n": 2, "best_of": 1}, "best_of", "best_of=1 is less than n=2"),
    ({"max_tokens": 10**9}, "max_tokens", "max_tokens=1,000,000,000 is more than this server allows: at most 4,096"),
    ({"max_tokens": 0}, "max_tokens", "max_tokens=0 must be at least 1"),
    ({"max_tokens": -1}, "max_tokens", "max_tokens=-1 must be at least 1"),
    ({"max_tokens": 10**30}, "max_tokens", "too large for a number of 64 bits"),
    ({"max_tokens": "many"}, "max_tokens", "max_tokens='many' is not a whole number"),
    ({"max_tokens": True}, "max_tokens", "max_tokens=True is not a whole number"),
    ({"temperature": -0.5}, "temperature", "temperature=-0.5 must be at least 0"),
    ({"top_p": 1.5}, "top_p", "top_p=1.5 must be above 0 and at most 1"),
    ({"logprobs": 21}, "logprobs", "logprobs=21 must be at least 0 and at most 20"),
    ({"prompt": ""}, "prompt", "prompt: it is empty"),
    ({"prompt": []}, "prompt", "prompt: it is empty"),
    ({"prompt": [[]]}, "prompt", "prompt: it is empty"),
    ({"prompt": ["a", ""]}, "prompt", "prompt: it is empty"),
    ({"prompt": [400]}, None, "token 400 is outside the model's vocabulary 0 … 399"),
    ({"prompt": [-1]}, None, "token -1 is outside the model's vocabulary 0 … 399"),
    ({"prompt": "q" * 1000}, None, "this model reads at most max_len=96"),
    ({"prompt": {"text": "a"}}, "prompt", "is not a text"),
    ({"stop": ""}, "stop", "stop='' is not a text of at least one character"),
    ({"beam": 2, "temperature": 1}, "beam", "choose one"),
    ({"n": 2, "temperature": 0}, "n", "set a temperature above 0"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "'x' is not the id of a token"),
    ({"logit_bias": {"3": 101}}, "logit_bias", "must be from -100 to 100"),
    ({"logit_bias": {"4000": 1}}, None, "outside the vocabulary 0 … 399"),
    ({"allow": "(a"}, "allow", "is no regular expression"),
    ({"allow": "(" * 200 + "a" + ")" * 200}, "allow", "too deeply nested"),
    ({"suffix": "end"}, "suffix", "no model here"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "this is no stream"),
    ({"stream": True, "n": 2, "best_of": 3}, "best_of", "a stream cannot choose"),
    ({"max_new_tokens": 3}, "max_new_tokens", "did you mean max_tokens?"),
    ({"model": "translator"}, "model", "only a language model continues a text"),
    ({"model": "pictures"}, "model", "has no tokenizer"),
]


@pytest.mark.parametrize(("question", "param", "words"), REFUSED, ids=lambda case: str(case)[:50])
def test_fault_24_what_is_refused_and_why(client, question, param, words):
    error = post(client, expected=400, **question)["error"]
    assert words in error["message"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_fault_24_the_words_are_those_of_the_python_call(client):
    options: dict[str, Any]
    for options in ({"max_tokens": 0}, {"temperature": -1.0}, {"top_p": 2.0, "temperature": 1.0}, {"beam": 3000}):
        with pytest.raises(cutaway.errors.InputError) as refused:
            cutaway.generate(speaker(), byte_level_once(), PROMPT, **options)
        assert post(client, expected=400, **options)["error"]["message"] == str(refused.value)


def test_fault_24_a_temperature_that_is_no_number(client):
    for value in ("NaN", "Infinity", "-Infinity", '"NaN"', "1e999"):
        answer = client.post(PATH, content=f'{{"model": "speaker", "prompt": "a", "temperature": {value}}}')
        assert answer.status_code == 400, answer.text


def test_an_unknown_model(client):
    error = post(client, expected=404, model="../../etc/passwd")["error"]
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "'speaker'" in error["message"]


def test_a_missing_field(client):
    answer = client.post(PATH, json={"model": "speaker"})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "message": "prompt: this field is missing", "type": "invalid_request_error", "param": "prompt", "code": None,
    }  # fmt: skip
