"""LibreTranslate's routes: they answer what `translate` answers, in JSON and in forms, alone or among others."""

import json
from typing import Any

import httpx
import pytest
from helpers.served import ask_all, client_of, running, served_model, service_of
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from tokenizers import AddedToken

import cutaway
from cutaway.decoding.alignment import align
from cutaway.decoding.translate import tag_for
from cutaway.serving.limits import Limits
from cutaway.tokens import Tokenizer

TEXTS = ["I ate an apple. Where is the station?", "Yes.", "", "The old man's dog barked.\n\nIt was late.", "Yes."]


@pytest.fixture(scope="module")
def both():
    return cutaway.load("en-de"), cutaway.load_tokenizer("en-de")


@pytest.fixture(scope="module")
def server(both):
    with running(service_of(served_model("en-de", *both), limits=Limits(max_texts=40))) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


def post(client: httpx.Client, path: str = "/translate", status: int = 200, **fields: Any) -> Any:
    body = {"source": "en", "target": "de"} if path == "/translate" else {}
    answer = client.post(path, json=body | fields)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"beam": 1},
        {"beam": 2, "prune": 1.0},
        {"length_penalty": 0.5},
        {"prefix": "Der"},
        {"terms": {"dog": "Rüde"}},
    ],
    ids=str,
)
def test_texts_are_those_of_translate(client, both, more):
    expected = cutaway.translate(*both, TEXTS, to="de", **more)
    assert post(client, q=TEXTS, **more) == {"translatedText": expected}
    assert post(client, q=TEXTS[0], **more) == {"translatedText": expected[0]}


def test_forms_are_read_as_json_is(client, both):
    for data in ({"q": TEXTS[0], "beam": "2"}, {"q": "Yes.", "alternatives": "2"}, {"q": "12", "format": "text"}):
        fields = {"source": "en", "target": "de", **data}
        numbers = {name: int(value) if name in ("beam", "alternatives") else value for name, value in fields.items()}
        expected = post(client, **numbers)
        assert client.post("/translate", data=fields).json() == expected
        assert (
            client.post("/translate", files={name: (None, value) for name, value in fields.items()}).json() == expected
        )
    several = client.post("/translate", data={"q": ["Yes.", "No."], "source": "en", "target": "de"}).json()
    assert several["translatedText"] == cutaway.translate(*both, ["Yes.", "No."], to="de")


def test_alternatives_are_the_next_best(client, both):
    best = cutaway.translate(*both, TEXTS[0], to="de", n_best=4)
    found = post(client, q=TEXTS[0], alternatives=3)
    assert found == {"translatedText": best.text, "alternatives": [one.text for one in best.n_best[1:]]}
    assert len(post(client, q="Yes.", alternatives=7)["alternatives"]) == 7  # a beam wide enough
    found = post(client, q=["Yes.", "No."], alternatives=1)
    assert [len(its) for its in found["alternatives"]] == [1, 1]


def test_alignments_are_those_of_the_texts(client, both):
    found = post(client, q=TEXTS[0], align=True)
    expected = cutaway.translate(*both, TEXTS[0], to="de", align=True)
    assert found["translatedText"] == expected.text
    assert found["alignment"] == expected.alignment.pharaoh()
    assert [(tuple(one["source"]), tuple(one["target"])) for one in found["links"]] == [
        (source, target) for source, target, _ in expected.alignment.links()
    ]
    assert [one["weight"] for one in found["links"]] == pytest.approx(
        [weight for *_, weight in expected.alignment.links()], abs=1e-4
    )
    with_terms = post(client, q="The dog barks.", align=True, terms={"dog": "Rüde"})
    (expected,) = align(*both, ["The dog barks."], [with_terms["translatedText"]], tag=tag_for(both[1], "de"))
    assert with_terms["alignment"] == expected.pharaoh()


def test_the_language_is_guessed(client, both):
    found = post(client, q=TEXTS[0], source="auto")
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] > 50
    assert found["translatedText"] == post(client, q=TEXTS[0])["translatedText"]
    mixed = post(client, q=["Where is the station?", "Wo ist der Bahnhof?"], source="auto")
    assert [one["language"] for one in mixed["detectedLanguage"]] == ["en", "de"]
    assert mixed["translatedText"][1] == "Wo ist der Bahnhof?"  # it is German already
    assert mixed["translatedText"][0] == cutaway.translate(*both, "Where is the station?", to="de")
    assert post(client, "/detect", q="Das ist ein Hund.")[0]["language"] == "de"
    assert post(client, q="Guten Morgen!", source="de") == {"translatedText": "Guten Morgen!"}


@pytest.mark.parametrize(
    "more", [{"alternatives": 2}, {"align": True}, {"watch": {"lens": 1}}, {"watch": {"alignment": True}}], ids=str
)
def test_what_is_left_as_it_is_has_the_keys_of_translations(client, more):
    texts = ["Where is the station?", "Wo ist der Bahnhof?"]
    alone = post(client, q=texts[0], **more)
    for mixed in (texts, texts[::-1]):
        found = post(client, q=mixed, source="auto", **more)
        assert {*found} == {*alone, "detectedLanguage"}
        english, german = mixed.index(texts[0]), mixed.index(texts[1])
        assert {key: found[key][english] for key in alone} == alone
        left = {key: found[key][german] for key in alone}
        unchanged = {"translatedText": texts[1], "alternatives": [], "watch": [], "alignment": "0-0 1-1 2-2 3-3 4-4"}
        words = [[0, 2], [3, 6], [7, 10], [11, 18], [18, 19]]
        unchanged["links"] = [{"source": word, "target": word, "weight": 1.0} for word in words]
        assert left == {key: unchanged[key] for key in alone}
        assert post(client, q=texts[1], source="de", **more) == left


def test_pages_keep_their_tags(client, both):
    page = '<div id="a"><p>Where is the station?</p><pre>x  =  1</pre><!-- no --></div>'
    said = cutaway.translate(*both, "Where is the station?", to="de")
    assert post(client, q=page, format="html")["translatedText"] == page.replace("Where is the station?", said)
    refused = post(client, q=page, format="html", align=True, status=400)
    assert 'format="html" has no align' in refused["error"]


def test_what_languages_there_are(client):
    languages = {one["code"]: one for one in client.get("/languages").json()}
    assert languages["en"] == {"code": "en", "name": "English", "targets": ["de"]}
    assert languages["de"] == {"code": "de", "name": "German", "targets": ["en"]}
    settings = client.get("/frontend/settings").json()
    assert {one["code"] for one in settings["language"].values()} == {"en", "de"}
    assert settings["keyRequired"] is False


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target": "fr", "q": "Hi"}, "target: no model here translates 'en' into 'fr'; there is "),
        ({"source": "fr", "q": "Hi"}, "source: no model here translates 'fr' into 'de'"),
        ({}, "q: this field is missing"),
        ({"q": 3}, "q=3 is not a text or a list of texts"),
        ({"q": "Hi", "alternatives": 10**6}, "alternatives=1,000,000 must be at least 0 and at most 16"),
        ({"q": "Hi", "beam": 0}, "beam=0 must be at least 1"),
        ({"q": "Hi", "num_beams": 3}, "did you mean beam?"),
        ({"q": "Hi", "format": "pdf"}, "format='pdf' is not one of 'text', 'html'"),
        ({"q": ["Hi"] * 41}, "41 texts are more than the 40 of a request"),
        ({"q": "Hi", "model": "../en-de"}, "model '../en-de' is not served"),
        ({"q": "Hi", "watch": {"heads": ["decoder.99.cross.0"]}}, "watch: no tap matches"),
        ({"q": "Hi", "watch": {"lenses": 3}}, "watch: this request has no argument 'lenses': did you mean lens?"),
        ({"q": "Hi", "watch": {"lens": 21}}, "watch: lens=21 must be at least 0"),
        ({"q": "Hi", "watch": {"heads": ["encoder.0.attention.99"]}}, "watch: heads: 'encoder.0.attention.99': "),
        ({"q": "The dog.", "watch": {"lens": 1}, "terms": {"dog": "Rüde"}}, "watch: a translation with terms"),
        ({"q": "a\udc80"}, "half of a character"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(client, fields, said):
    status = 404 if "model" in fields else 400
    data = json.dumps({"source": "en", "target": "de"} | fields).encode()
    answer = client.post("/translate", content=data, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    if said != "half of a character":
        assert said in answer.json()["error"]


def test_alone_is_as_among_others(server, client):
    """With other beams, alternatives, watches and directions beside it."""
    questions = [
        {"q": text, "source": "en", "target": "de", "beam": beam} for text in TEXTS if text for beam in (1, 2, 4)
    ]
    questions += [{"q": "Guten Morgen, Tom!", "source": "de", "target": "en"}]
    alone = [client.post("/translate", json=one).json()["translatedText"] for one in questions]
    watched = [one | {"watch": {"lens": 2, "heads": ["decoder.1.cross.0"], "norms": True}} for one in questions[::3]]
    answers = ask_all(
        server, lambda ask: [ask.post("/translate", json=one) for one in [*questions, *watched, *questions]]
    )
    found = [answer.json()["translatedText"] for answer in answers]
    assert found == [*alone, *alone[::3], *alone]


def test_a_watch_is_of_each_sentence(client):
    wished = {"alternatives": 2, "heads": ["decoder.0.cross.1", "encoder.1.attention.2"], "norms": True, "lens": 1}
    found = post(client, q=TEXTS[0], watch=wished | {"beam": True})
    assert [one["source"] for one in found["watch"]] == ["I ate an apple.", "Where is the station?"]
    assert " ".join(one["text"] for one in found["watch"]) == found["translatedText"]
    for one in found["watch"]:
        assert {*one} == {"source", "text", "tokens", "alternatives", "heads", "norms", "lens", "beam"}
        n = len(one["tokens"])
        assert len(one["alternatives"]) == n
        assert all(len(each) == n for each in [*one["norms"].values(), *one["lens"].values()])
        assert len(one["heads"]["decoder.0.cross.1"]["pattern"]) == n
    nothing = post(client, q="", watch={"lens": 1})
    assert nothing == {"translatedText": "", "watch": []}


def test_a_key_may_come_in_the_body(both):
    with running(service_of(served_model("en-de", *both), key="secret")) as server, client_of(server) as client:
        fields = {"q": "Yes.", "source": "en", "target": "de"}
        assert client.post("/translate", json=fields).status_code == 401
        assert client.post("/translate", json=fields | {"api_key": "wrong"}).status_code == 401
        assert client.post("/translate", data=fields).status_code == 401
        assert client.post("/detect", data={"q": "Yes."}).status_code == 401
        for known in ({"json": fields | {"api_key": "secret"}}, {"data": fields | {"api_key": "secret"}}):
            assert client.post("/translate", **known).status_code == 200
        assert client.post("/translate", json=fields, headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/languages").status_code == 401


def test_models_are_found_by_their_languages():
    """One tag for each target; a name says what is translated where there are none."""
    tagged, plain = byte_level(), byte_level()
    tagged.backend.add_special_tokens([AddedToken("<2fr>", special=True), AddedToken("<2es>", special=True)])
    tagged = Tokenizer(tagged.backend)
    first = quick(vocab_size=410)
    served = [served_model("first", first, tagged), served_model("en-it", quick(seed=5), plain),
              served_model("other", quick(seed=6), plain)]  # fmt: skip
    with running(service_of(*served)) as server, client_of(server) as client:
        found = {one["code"]: one["targets"] for one in client.get("/languages").json()}
        assert found == {"fr": ["es"], "es": ["fr"], "en": ["it"]}
        fields = {"q": "Hi", "beam": 1}
        said = post(client, source="fr", target="es", **fields)["translatedText"]
        assert said == cutaway.translate(first, tagged, "Hi", to="es", beam=1)
        said = post(client, source="en", target="it", **fields)["translatedText"]
        assert said == cutaway.translate(quick(seed=5), plain, "Hi", beam=1)
        refused = post(client, source="en", target="it", model="first", status=400, **fields)
        assert "there is fr → es, es → fr" in refused["error"]
