"""/fill, /classify and the routes of tokens: what the Python calls answer, over HTTP."""

import base64
import io
import struct
import zlib
from dataclasses import asdict
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.classifiers import PAIRS, SENTENCES, classifier, wordpiece
from helpers.served import WORDS, client_of, running, served_model, service_of, tiny_models
from helpers.text_generators import byte_level_once, speaker
from helpers.tiny_models import tiny
from PIL import Image
from tokenizers import AddedToken

import cutaway
from cutaway.serving.limits import Limits

MASKED = bert_tokenizer(WORDS, AddedToken("[MASK]"))
ADDRESSES = ("http://127.0.0.1:1/x.png", "https://example.org/x.png", "file:///etc/hostname", "/etc/hostname")


@pytest.fixture(scope="module")
def models():
    chatty = byte_level_once()
    return {
        "blanks": (
            tiny("bert", task="masked_language_model", vocab_size=MASKED.vocab_size, dtype=torch.float32),
            MASKED,
        ),
        "classes": (classifier(vocab_size=wordpiece().vocab_size, dtype=torch.float32), wordpiece()),
        "tags": (classifier(task="tag", vocab_size=wordpiece().vocab_size, dtype=torch.float32), wordpiece()),
        "number": (
            classifier(task="regress", n_classes=1, vocab_size=wordpiece().vocab_size, dtype=torch.float32),
            wordpiece(),
        ),
        "pictures": (tiny("vit", dtype=torch.float32), None),
        "speaker": (speaker(), chatty),
    }


@pytest.fixture(scope="module")
def client(models):
    service = service_of(*(served_model(name, *its) for name, its in models.items()), limits=Limits(max_texts=8))
    with running(service) as server, client_of(server) as client:
        yield client


def post(client: httpx.Client, path: str, expected: int = 200, **question: Any) -> Any:
    answer = client.post(path, json=question)
    assert answer.status_code == expected, answer.text
    return answer.json() if expected == 200 else answer.json()["error"]


def picture(seed: int = 0, size: int = 24) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8))


def png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- blanks -----------------------------------------------------------------------------------------------------------


def test_blanks_are_filled_as_fill_does(client, models):
    texts = ["the [MASK] sat on ___", "a <mask>"]
    expected = [asdict(one) for one in cutaway.fill(*models["blanks"], texts, k=3)]
    assert post(client, "/fill", model="blanks", text=texts, k=3) == {"model": "blanks", "results": expected}
    (one,) = post(client, "/fill", model="blanks", text=texts[1])["results"]
    assert one["sentence"] == expected[1]["sentence"]
    assert len(one["blanks"][0]) == 5


# --- classes ----------------------------------------------------------------------------------------------------------


def test_texts_and_pairs_have_the_classes_of_classify(client, models):
    mixed = [*SENTENCES[:3], *PAIRS[:3]]
    expected = [asdict(cutaway.classify(*models["classes"], one)) for one in mixed]
    found = post(client, "/classify", model="classes", text=[*SENTENCES[:3], *map(list, PAIRS[:3])])
    assert found["model"] == "classes"
    for one, other in zip(found["results"], expected, strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
    assert post(client, "/classify", model="classes", text=SENTENCES[0])["results"] == expected[:1]
    cut = asdict(cutaway.classify(*models["classes"], SENTENCES[0], cut=3))
    assert post(client, "/classify", model="classes", text=SENTENCES[0], cut=3)["results"] == [cut] != expected[:1]
    assert client.post(
        "/classify", data={"model": "classes", "text": SENTENCES[0], "cut": "3"}, files={"x": b""}
    ).json()["results"] == [cut]


def test_tags_and_numbers(client, models):
    (tags,) = post(client, "/classify", model="tags", text="the dog runs")["results"]
    assert tags == [asdict(tag) for tag in cutaway.classify(*models["tags"], "the dog runs")]
    assert [tag["word"] for tag in tags] == ["the", "dog", "runs"]
    value = cutaway.classify(*models["number"], "the dog runs")
    assert post(client, "/classify", model="number", text="the dog runs")["results"] == [{"value": value}]


def test_pictures_in_base64_and_as_files(client, models, tmp_path):
    data = [png(picture(n)) for n in range(3)]
    for n, one in enumerate(data):
        (tmp_path / f"{n}.png").write_bytes(one)
    expected = [asdict(cutaway.classify(models["pictures"][0], str(tmp_path / f"{n}.png"))) for n in range(3)]
    coded = [*map(in_base64, data[:2]), f"data:image/png;base64,{in_base64(data[2])}"]
    together = post(client, "/classify", model="pictures", image=coded)["results"]
    files = [("image", (f"{n}.png", one, "image/png")) for n, one in enumerate(data)]
    formed = client.post("/classify", data={"model": "pictures"}, files=files).json()["results"]
    alone = [post(client, "/classify", model="pictures", image=one)["results"][0] for one in coded]
    for found in (together, formed, alone):
        assert [one["label"] for one in found] == [one["label"] for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def _huge(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and has not one line of it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (
            in_base64(_huge(50_000, 50_000)),
            "image 1 cannot be read as an image: Image size (2500000000 pixels) exceeds",
        ),
        (in_base64(_huge(9_000, 9_000)), "image 1 has 9000 × 9000 pixels; at most 67,108,864 are read"),
        (in_base64(png(picture())[:200]), "image 1 cannot be read as an image"),
        (in_base64(b"GIF89a no picture"), "image 1 cannot be read as an image"),
        (in_base64(b""), "image 1 cannot be read as an image"),
        ("", "image 1 cannot be read as an image"),
        ("not base64!", "image 1 is not in base64"),
        ("data:image/png,abc", "image 1 is no data URL in base64"),
        ("ab☃", "image 1 is not in base64"),
        ("iV!BO", "image 1 is not in base64"),
        (["iVBO", 5], "image="),
        ([], "image: the list is empty"),
        ([in_base64(b"x")] * 9, "image: 9 are more than the 8 of a request"),
    ],
)
def test_pictures_that_are_none(client, image, message):
    error = post(client, "/classify", 400, model="pictures", image=image)
    assert message in error["message"]


def test_a_file_that_is_no_picture(client):
    for data in (_huge(50_000, 50_000), png(picture())[:150], b"", b"%PDF-1.4"):
        answer = client.post("/classify", data={"model": "pictures"}, files={"image": ("a.png", data)})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith("image 1 ")
    many = [("image", ("a.png", b"x"))] * 9
    assert client.post("/classify", data={"model": "pictures"}, files=many).status_code == 400


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_is_fetched_and_no_file_opened(client, address, monkeypatch):
    def forbidden(*_: object) -> None:
        raise AssertionError("a picture was opened from a path")

    monkeypatch.setattr("cutaway.data.images.read_image", forbidden)
    message = post(client, "/classify", 400, model="pictures", image=address)["message"]
    assert "is an address, and nothing is fetched" in message or "is not in base64" in message


@pytest.mark.parametrize(
    ("path", "question", "message"),
    [
        ("/fill", {"model": "blanks"}, "text: this field is missing"),
        ("/fill", {"model": "blanks", "text": "no blank"}, "text 1 has no blank"),
        ("/fill", {"model": "blanks", "text": []}, "text: the list is empty"),
        ("/fill", {"model": "blanks", "text": ["[MASK]"] * 9}, "text: 9 are more than the 8"),
        ("/fill", {"model": "blanks", "text": "[MASK]", "k": 0}, "k=0 must be at least 1"),
        ("/fill", {"model": "speaker", "text": "[MASK]"}, "cannot fill blanks"),
        ("/fill", {"model": "pictures", "text": "[MASK]"}, "has no tokenizer and reads no text"),
        ("/classify", {"model": "classes"}, "text or image: give one of the two"),
        ("/classify", {"model": "classes", "text": "a", "image": "a"}, "text or image: give one of the two"),
        ("/classify", {"model": "classes", "text": [["a"]]}, "text 1 is a list of 1: a pair has two"),
        ("/classify", {"model": "classes", "text": ["a", ["a", "b", "c"]]}, "text 2 is a list of 3"),
        ("/classify", {"model": "classes", "text": [["a", 5]]}, "text="),
        ("/classify", {"model": "classes", "text": [["a", ["b"]]]}, "text="),
        ("/classify", {"model": "classes", "text": "the dog " * 99}, "tokens"),
        ("/classify", {"model": "classes", "image": "iVBO"}, "reads text"),
        ("/classify", {"model": "pictures", "text": "a"}, "reads pictures: send an image"),
        ("/classify", {"model": "speaker", "text": "a"}, "has no classes"),
        ("/tokenize", {"model": "pictures", "prompt": "a"}, "has no tokenizer"),
        ("/tokenize", {"prompt": 5}, "prompt=5 is not a text"),
        ("/tokenize", {}, "prompt: this field is missing"),
        ("/detokenize", {"tokens": [10**9]}, "token id 1000000000 is outside the vocabulary"),
        ("/detokenize", {"tokens": [-1]}, "token id -1 is outside"),
        ("/detokenize", {"tokens": ["a"]}, "tokens=['a'] is not a list"),
        ("/detokenize", {"tokens": [2**70]}, "is outside the vocabulary"),
    ],
)
def test_what_cannot_be_done_is_said(client, path, question, message):
    assert message in post(client, path, 400, **question)["message"]


def test_models_that_are_not_there(client):
    for path, field in (("/fill", "text"), ("/classify", "text"), ("/tokenize", "prompt")):
        error = post(client, path, 404, model="../blanks", **{field: "a"})
        assert error["code"] == "model_not_found"


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["The quick brown fox.", "naïve 日本 ☃", "", " \n", "<eos> & <sos>"])
def test_texts_become_tokens_and_texts_again(client, models, text):
    tokenizer = models["speaker"][1]
    for special in (True, False):
        found = post(client, "/tokenize", model="speaker", prompt=text, add_special_tokens=special)
        assert found["tokens"] == tokenizer.encode(text, special=special)
        assert found["count"] == len(found["tokens"])
        assert found["max_model_len"] == 96
        assert found["token_strs"] is None
    assert post(client, "/detokenize", model="speaker", tokens=found["tokens"]) == {"prompt": text}
    named = post(client, "/tokenize", model="speaker", prompt=text, return_token_strs=True)["token_strs"]
    assert named == [tokenizer.token(id) for id in tokenizer.encode(text)]


def test_whoever_names_no_model_asks_the_first_that_writes(client, models):
    """As lm-eval does."""
    tokenizer = models["speaker"][1]
    assert post(client, "/tokenize", prompt="a fox")["tokens"] == tokenizer.encode("a fox")
    info = client.get("/tokenizer_info").json()
    assert info["model"] == "speaker"
    assert info["eos_token"] == tokenizer.token(tokenizer.eos_id)
    assert info["chat_template"] is None
    (end,) = post(client, "/tokenize", prompt=info["eos_token"], add_special_tokens=False)["tokens"]
    assert end == tokenizer.eos_id
    assert client.get("/tokenizer_info", params={"model": "classes"}).json()["cls_token"] == "[CLS]"
    assert client.get("/tokenizer_info", params={"model": "no"}).status_code == 404


def test_where_no_model_writes_the_first_that_reads_is_asked():
    encoder = next(one for one in tiny_models() if one.name == "encoder")
    with running(service_of(encoder)) as server, client_of(server) as client:
        assert client.get("/tokenizer_info").json()["model"] == "encoder"


def test_the_routes_are_described(client):
    described = client.get("/openapi.json").json()["paths"]
    for path, field in (("/fill", "text"), ("/classify", "image"), ("/tokenize", "prompt"), ("/detokenize", "tokens")):
        schema = described[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert field in schema["properties"]
