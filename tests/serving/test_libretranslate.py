"""LibreTranslate's API: its client unchanged, and what `cutaway.translate` says, as JSON and as a form."""

from typing import Any

import httpx
import pytest
from helpers.client_packages import run_client
from helpers.served import client_of, running, served_model, service_of
from helpers.text_generators import byte_level_once, speaker
from helpers.translators import quick, translator

import cutaway
from cutaway.decoding.translate import translations
from cutaway.serving.limits import Limits

KEY = "secret"
ENGLISH, GERMAN = "Where is the key? I do not know.", "Wo ist der Schlüssel? Ich weiß es nicht."


@pytest.fixture(scope="module")
def translators():
    return {"en-de": (quick(), byte_level_once()), "de-en": (quick(seed=3), byte_level_once())}


@pytest.fixture(scope="module")
def service(translators):
    models = [served_model("speaker", speaker(), byte_level_once())]
    models += [served_model(name, *its) for name, its in translators.items()]
    return service_of(*models, limits=Limits(max_texts=8))


@pytest.fixture(scope="module")
def client(service):
    with running(service) as server, client_of(server) as client:
        yield client


def post(client: httpx.Client, path: str = "/translate", expected: int = 200, **question: Any) -> Any:
    answer = client.post(path, json=question)
    assert answer.status_code == expected, answer.text
    return answer.json()


def test_the_package_libretranslatepy(request, translators):
    service = service_of(*(served_model(name, *its) for name, its in translators.items()), key=KEY)
    with running(service) as server:
        found = run_client(request.config, server.url, "libretranslate_calls.py", "libretranslatepy==2.1.4")
    assert found["text"] == cutaway.translate(*translators["en-de"], "I ate an apple. The fox!")
    assert found["guessed"] == cutaway.translate(*translators["en-de"], ENGLISH)
    best, other = found["detected"]
    assert (best["language"], other["language"]) == ("en", "de")
    assert best["confidence"] > 90 > 10 > other["confidence"] >= 0
    assert found["languages"] == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]
    assert found["unknown language"][0] == 400
    assert "no model here translates 'en' into 'xx'" in found["unknown language"][1]
    assert found["wrong key"][0] == 401


def test_a_text_and_a_list(client, translators):
    texts = ["I ate an apple.", "", "Hi", "The quick brown fox. It jumps!"]
    expected = cutaway.translate(*translators["en-de"], texts)
    assert post(client, q=texts, source="en", target="de") == {"translatedText": expected}
    for text, one in zip(texts, expected, strict=True):
        assert post(client, q=text, source="en", target="de") == {"translatedText": one}
        assert client.post("/translate", data={"q": text, "source": "en", "target": "de"}).json() == {
            "translatedText": one
        }
    form = client.post("/translate", data={"q": texts, "source": "en", "target": "de", "beam": "2"}).json()
    assert form == {"translatedText": cutaway.translate(*translators["en-de"], texts, beam=2)}
    assert post(client, q="Hallo", source="de", target="en") != post(client, q="Hallo", source="en", target="de")
    assert post(client, q=[], source="en", target="de") == {"translatedText": []}


def test_a_language_that_is_found_out(client, translators):
    found = post(client, q=[ENGLISH, GERMAN], source="auto", target="de")
    assert found["translatedText"] == [cutaway.translate(*translators["en-de"], ENGLISH), GERMAN]
    assert [one["language"] for one in found["detectedLanguage"]] == ["en", "de"]
    assert all(90 < one["confidence"] <= 100 for one in found["detectedLanguage"])
    (detected, *_), alone = post(client, "/detect", q=GERMAN), post(client, q=GERMAN, target="en")
    assert alone == {
        "translatedText": cutaway.translate(*translators["de-en"], GERMAN),
        "detectedLanguage": detected,
    }


def test_alternatives_alignments_and_terms(client, translators):
    text = "The quick brown fox."
    (whole,) = translations(*translators["en-de"], [text], n_best=3)
    found = post(client, q=text, source="en", target="de", alternatives=2)
    assert [found["translatedText"], *found["alternatives"]] == [one.text for one in whole.n_best]
    (aligned,) = translations(*translators["en-de"], [text], align=True)
    found = post(client, q=text, source="en", target="de", align=True)
    assert found["translatedText"] == aligned.text
    assert found["alignment"] == aligned.alignment.pharaoh()
    for link, (source, target, weight) in zip(found["links"], aligned.alignment.links(), strict=True):
        assert (link["source"], link["target"]) == (list(source), list(target))
        assert link["weight"] == pytest.approx(weight, abs=1e-5)
    expected = cutaway.translate(*translators["en-de"], "The fox.", terms={"fox": "abc"})
    for question in ({"terms": {"fox": "abc"}}, {"model": "en-de", "terms": {"fox": "abc"}, "beam": 4}):
        found = post(client, q="The fox.", source="en", target="de", **question)["translatedText"]
        assert found == expected
        assert "abc" in found
    form = {"q": "The fox.", "source": "en", "target": "de", "terms": '{"fox": "abc"}', "align": "false"}
    assert client.post("/translate", data=form).json() == {"translatedText": expected}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("terms", "[" * 200_000, "is not a mapping"),
        ("terms", '{"a":' * 200_000, "is not a mapping"),
        ("terms", '{"a": "b", "a": "c"}', "is not a mapping"),
        ("length_penalty", "NaN", "is not a number"),
        ("length_penalty", "1" * 400, "is not a number"),
        ("beam", '2, "alternatives": 3', "is not a whole number"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_form_is_read_as_strictly_as_json(client, field, value, message):
    answer = client.post("/translate", data={"q": "Hi", "source": "en", "target": "de", field: value})
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("more", "n_jobs"),
    [({}, 1), ({"beam": 1}, 1), ({"format": "html"}, 1), ({"terms": {"fox": "abc"}}, None)],
    ids=str,
)
@pytest.mark.parametrize("ended", ["end", "limit"])
def test_translations_are_counted(ended, more, n_jobs):
    """Whatever way they go; and those that stop at the limit as such."""
    tokenizer = byte_level_once()
    model = translator() if ended == "limit" else translator(end_ids=(2, *range(100, 400)))
    service = service_of(served_model("en-de", model, tokenizer))
    with running(service) as server, client_of(server) as client:
        post(client, q="The fox.", source="en", target="de", **more)
        lines = dict(
            line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#")
        )
    counted = {name.partition(":")[2]: float(value) for name, value in lines.items()}
    assert counted[f'request_success_total{{finished_reason="{ended}",model_name="en-de"}}'] == 1
    n_prompt = len(tokenizer.encode("The fox.", special=False)) + 1
    assert counted['prompt_tokens_total{model_name="en-de"}'] == n_prompt
    assert counted['generation_tokens_total{model_name="en-de"}'] > 0
    assert counted['e2e_request_latency_seconds_count{model_name="en-de"}'] == 1
    n_started = counted['request_queue_time_seconds_count{model_name="en-de"}']
    assert n_started == n_jobs if n_jobs else n_started >= 1


def test_a_page(client, translators):
    page = "<p class='a>b'>Hi</p>\n<script>if (a<b) {}</script>The fox!<br>"
    one, two = cutaway.translate(*translators["en-de"], ["Hi", "The fox!"])
    found = post(client, q=page, source="en", target="de", format="html")["translatedText"]
    for part in ("<p class='a>b'>", "</p>\n<script>if (a<b) {}</script>", "<br>"):
        assert part in found
    escaped = [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in (one, two)]
    assert found == f"<p class='a>b'>{escaped[0]}</p>\n<script>if (a<b) {{}}</script>{escaped[1]}<br>"
    both = post(client, q=[page, "<i></i>"], source="en", target="de", format="html")["translatedText"]
    assert both == [found, "<i></i>"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"source": "en", "target": "de"}, "q: this field is missing"),
        ({"q": "a", "source": "en"}, "target: this field is missing"),
        ({"q": "a", "source": "en", "target": "fr"}, "no model here translates 'en' into 'fr'"),
        ({"q": "a", "source": "xx", "target": "de"}, "source: no model here translates 'xx' into 'de'"),
        ({"q": "a", "source": "auto", "target": "fr"}, "into 'fr'"),
        ({"q": 5, "source": "en", "target": "de"}, "q=5 is not a text"),
        ({"q": ["a", 5], "source": "en", "target": "de"}, "q=['a', 5] is not"),
        ({"q": ["a"] * 9, "source": "en", "target": "de"}, "q: 9 texts are more than the 8"),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, "format='pdf' is not one of 'text', 'html'"),
        ({"q": "a", "source": "en", "target": "de", "beam": 0}, "beam=0 must be at least 1"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 10**6}, "alternatives=1,000,000"),
        ({"q": "a", "source": "en", "target": "de", "terms": {"a": ""}}, "terms: 'a' = '' has an empty side"),
        ({"q": "a", "source": "en", "target": "de", "format": "html", "align": True}, 'format="html" has no align'),
    ],
)
def test_errors_have_the_form_of_libretranslate(client, question, message):
    found = post(client, expected=400, **question)
    assert list(found) == ["error"]
    assert message in found["error"]


def test_the_key_may_be_anywhere(translators):
    service = service_of(served_model("en-de", *translators["en-de"]), key=KEY)
    with running(service) as server, client_of(server) as client:
        question = {"q": "Hi", "source": "en", "target": "de"}
        for key, status in ((KEY, 200), ("wrong", 401)):
            assert client.post("/translate", json={**question, "api_key": key}).status_code == status
            assert client.post("/translate", data={**question, "api_key": key}).status_code == status
            assert client.post("/detect", data={"q": "Hi", "api_key": key}).status_code == status
            assert client.request("GET", "/languages", data={"api_key": key}).status_code == status
            bearer = {"authorization": f"Bearer {key}"}
            for path in ("/languages", "/frontend/settings"):
                assert client.get(path, headers=bearer).status_code == status
            assert client.post("/translate", json=question, headers=bearer).status_code == status
        for answer in (client.get("/languages"), client.post("/translate", json=question), client.post("/translate")):
            assert answer.status_code == 401
            assert list(answer.json()) == ["error"]
        assert client.request("GET", "/languages", content=b"{nonsense").status_code == 401
        assert client.request("GET", "/languages", content=b"[]" * 9).status_code == 401


def test_settings(client):
    found = client.get("/frontend/settings").json()
    assert found["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert (found["apiKeys"], found["keyRequired"], found["suggestions"]) == (False, False, False)
