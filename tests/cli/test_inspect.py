"""`cutaway inspect`: every kind of model, every option; the data are the library's."""

import json
from math import ceil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.inside_commands import ASKED, MORE, TEXT, check_page, data, failed, pieces, run, said, write_models
from helpers.tiny_models import tiny
from PIL import Image

from cutaway.checkpoints import load, save, tokenizer_of
from cutaway.decoding.translate import translations
from cutaway.inside.attribution.explain import explain_next
from cutaway.inside.circuits.head_scores import patterns
from cutaway.inside.inspect import look_inside
from cutaway.pictures import read_picture
from cutaway.pictures.to_picture import to_picture


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def near(ours: object, theirs: torch.Tensor) -> bool:
    return bool(np.allclose(np.array(ours), theirs.numpy(), rtol=1e-4, atol=1e-5))


@pytest.mark.parametrize("name", [*ASKED, "vit"])
def test_the_data_are_those_of_the_library(models: dict[str, Path], name: str) -> None:
    text = models["a.png"] if name == "vit" else ASKED[name]
    found = data("inspect", models[name], text, *MORE.get(name, []))
    model, tokenizer = load(models[name]), tokenizer_of(models[name])
    expected = look_inside(model, tokenizer, text, target=MORE.get(name, [None, None])[1])
    assert found["answer"] == expected.answer
    assert expected.attribution is not None
    assert expected.writers is not None
    assert near(found["attribution"]["scores"], expected.attribution.scores)
    assert near(found["writers"]["scores"], expected.writers.scores)
    assert "patterns" not in found
    assert len(found["heads"]) == sum(len(pattern) for pattern in (expected.patterns or {}).values())
    assert ("alignment" in found) == (name == "translator")
    probabilities = [[guess["probability"] for guess in some] for some in found["guesses"]]
    assert all(some == sorted(some, reverse=True) and 0 <= sum(some) <= 1.0001 for some in probabilities)


@pytest.mark.parametrize("name", [*ASKED, "vit"])
def test_writers_add_up_to_the_lead_of_the_answer(models: dict[str, Path], name: str) -> None:
    model, tokenizer = load(models[name]), tokenizer_of(models[name])
    text = models["a.png"] if name == "vit" else ASKED[name]
    found = look_inside(model, tokenizer, text, target=MORE.get(name, [None, None])[1], show=["writers"], k=1000)
    assert found.writers is not None
    for output, some, lead in zip(found.outputs, found.guesses, found.writers.scores.sum(dim=0), strict=True):
        (best, p), (second, q) = some[:2]
        if best == output:  # what is searched for is not always the likeliest
            assert abs(float(lead) - np.log(p / q)) < 1e-3, (best, second)


def test_explanations_and_patterns_are_the_tools(models: dict[str, Path]) -> None:
    model, tokenizer = load(models["gpt2"]), pieces()
    found = data("inspect", models["gpt2"], TEXT, "--show", "attribution", "--method", "gradient", "--target", "the")
    expected = explain_next(model, tokenizer, TEXT, target=" the", method="gradient_x_input")  # type: ignore[arg-type]
    assert near(found["attribution"]["scores"], expected.scores)
    assert "heads" not in found
    found = data("inspect", models["gpt2"], TEXT, "--show", "heads", "--layer", 1)
    ids = torch.tensor([tokenizer.encode(TEXT, special=False)])
    assert list(found["patterns"]) == ["decoder.1.attention"]
    assert near(found["patterns"]["decoder.1.attention"], patterns(model, ids)["decoder.1.attention"][0])
    versus = data("inspect", models["gpt2"], TEXT, "--versus", "dog", "--show", "writers")
    assert (
        versus["writers"]["versus"][0].strip() == tokenizer.decode(tokenizer.encode(" dog", special=False)[:1]).strip()
    )


@pytest.mark.parametrize("method", ["integrated", "gradient", "rollout", "value"])
def test_every_method(models: dict[str, Path], method: str) -> None:
    for name in ("gpt2", "translator"):
        assert "What the answer comes from" in said(
            "inspect", models[name], ASKED[name], "--method", method, *MORE.get(name, [])
        )


@pytest.mark.parametrize("name", [*ASKED, "vit"])
def test_a_terminal_view_has_no_wide_line_and_no_byte_level_letters(models: dict[str, Path], name: str) -> None:
    text = models["a.png"] if name == "vit" else ASKED[name]
    shown = said("inspect", models[name], text, *MORE.get(name, []))
    for title in ("What the answer comes from", "Who wrote it", "Heads"):
        assert title in shown
    assert "Ġ" not in shown
    assert "\x1b" not in shown
    if name in ("gpt2", "llama"):
        assert "naïve" in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines()[2:])


def test_only_what_is_shown(models: dict[str, Path]) -> None:
    assert "Heads" not in said("inspect", models["gpt2"], TEXT, "--show", "writers")
    assert "layer" in said("inspect", models["gpt2"], TEXT, "--show", "heads", "--head", 2)
    two = said(
        "inspect", models["translator"], "Hi you", *MORE["translator"], "--show", "alignment", "--show", "answer"
    )
    assert "Alignment" in two
    assert "Who" not in two


KINDS = {
    "gpt2": ["coloured text", "heat map", "heads"],
    "translator": ["coloured text", "arcs", "heat map", "heads", "heads", "heads"],
    "bert": ["coloured text", "heat map", "heads"],
    "label": ["coloured text", "heat map", "heads"],
    "vit": ["image", "heat map", "image", "heads"],
}


@pytest.mark.parametrize("name", KINDS)
def test_pages_ask_nobody(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    text = models["a.png"] if name == "vit" else ASKED[name]
    assert said("inspect", models[name], text, *MORE.get(name, []), "--out", tmp_path / "page.html") == ""
    page = check_page(tmp_path / "page.html", *KINDS[name])
    assert "Ġ" not in page


def test_one_picture_one_letter_or_the_data(models: dict[str, Path], tmp_path: Path) -> None:
    said("inspect", models["gpt2"], TEXT, "--show", "heads", "--out", tmp_path / "a.svg")
    assert read_picture(tmp_path / "a.svg").kind == "heads"
    said("inspect", models["gpt2"], TEXT, "--out", tmp_path / "a.txt")
    assert "naïve" in (tmp_path / "a.txt").read_text()
    said("inspect", models["gpt2"], TEXT, "--out", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["question"] == "next word"


def test_512_tokens_fit_into_5_megabytes(tmp_path: Path) -> None:
    words = " ".join(["the dog ran"] * 400)
    tokenizer = pieces()
    save(tiny("gpt2", vocab_size=280, max_len=512, n_layers=2, dtype=torch.float32), tmp_path / "model", tokenizer)
    text = tokenizer.decode(tokenizer.encode(words, special=False)[:512])
    assert len(tokenizer.encode(text, special=False)) == 512
    said("inspect", tmp_path / "model", text, "--method", "gradient", "--out", tmp_path / "page.html")
    check_page(tmp_path / "page.html", "coloured text", "heat map", "heads")
    assert (tmp_path / "page.html").stat().st_size < 5_000_000


def test_what_cannot_be_looked_into_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    gpt2 = models["gpt2"]
    assert "is empty" in failed("inspect", gpt2, " ")
    assert "has no blank" in failed("inspect", models["bert"], "no blank")
    assert "for translators" in failed("inspect", gpt2, TEXT, "--show", "alignment")
    for name, text in (("gpt2", TEXT), ("vit", models["a.png"])):
        assert "does not translate" in failed("inspect", models[name], text, "--to", "de")
    assert "layers 0 … 1" in failed("inspect", gpt2, TEXT, "--layer", 2)
    assert "heads 0 … 3" in failed("inspect", gpt2, TEXT, "--head", 4)
    assert "gives no answer" in failed("inspect", models["hidden"], "the dog")
    assert "reads at most 64" in failed("inspect", gpt2, "the dog " * 100).replace("max_len=", "")
    assert "label 'x' is not one of 0, 1, 2" in failed("inspect", models["label"], "a film", "--target", "x")
    assert "versus is for next words" in failed("inspect", models["bert"], "a [MASK]", "--versus", "dog").replace(
        "--", ""
    )
    assert "has to end in" in failed("inspect", gpt2, TEXT, "--out", tmp_path / "a.pdf")
    assert "there is no folder" in failed("inspect", gpt2, TEXT, "--out", tmp_path / "no" / "a.html")
    assert "holds one picture" in failed(
        "inspect", gpt2, TEXT, "--show", "heads", "--show", "writers", "--out", tmp_path / "a.svg"
    )
    assert "has no picture" in failed("inspect", gpt2, TEXT, "--show", "answer", "--out", tmp_path / "a.html")
    assert run("inspect", gpt2, TEXT, "--show", "everything").exit_code == 2
    assert run("inspect", models["vit"], tmp_path / "none.png").exit_code == 2
    (gpt2 / "tokenizer.json").rename(gpt2 / "away")
    assert "has no tokenizer" in failed("inspect", gpt2, TEXT)
    (gpt2 / "away").rename(gpt2 / "tokenizer.json")


def test_integrated_gradients_say_how_far_they_are_from_adding_up(models: dict[str, Path]) -> None:
    found = data("inspect", models["gpt2"], TEXT, "--show", "attribution", "--steps", 3)["attribution"]
    gap = abs(sum(found["scores"][0]) - (found["total"][0] - found["of_baseline"][0]))
    wanted = abs(found["total"][0] - found["of_baseline"][0])
    assert found["steps"] == 3
    assert found["error"] == pytest.approx(gap / wanted, abs=1e-4)
    shown = said("inspect", models["gpt2"], TEXT, "--show", "attribution", "--steps", 3)
    assert f"3 steps; sums are off by up to {ceil(100 * found['error'])}% of the largest" in shown
    assert "  1 step; sums" in said("inspect", models["gpt2"], TEXT, "--show", "attribution", "--steps", 1)
    assert "steps; sums" not in said("inspect", models["gpt2"], TEXT, "--show", "attribution", "--method", "gradient")


def test_a_translator_is_looked_into_sentence_by_sentence(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what a random model says is long
    monkeypatch.setattr("cutaway.inside.questions.translations", lambda *_, **__: [SimpleNamespace(text="a dog")])
    text, quick = "I ate. An apple, Mr. Smith!\nHi.", ["--method", "gradient"]
    sentences = ["I ate.", "An apple, Mr. Smith!", "Hi."]
    model, tokenizer = load(models["translator"]), tokenizer_of(models["translator"])
    assert tokenizer is not None
    assert [one.source for one in translations(model, tokenizer, [text], beam=1)[0].sentences] == sentences  # type: ignore[arg-type]
    found = data("inspect", models["translator"], text, *quick)
    assert (found["given"], [one["given"] for one in found["sentences"]]) == (text, sentences)
    alone = data("inspect", models["translator"], "I ate.", *quick)
    assert alone == {"model": found["model"], **found["sentences"][0]}
    assert data("inspect", models["translator"], text, *quick, "--whole")["given"] == text
    assert data("inspect", models["translator"], text, *quick, "--target", "b c")["given"] == text
    shown = said("inspect", models["translator"], text, *quick)
    assert "sentence 3 of 3" in shown
    assert "‹…› is of the translation so far" in shown
    said("inspect", models["translator"], text, *quick, "--out", tmp_path / "page.html")
    page = check_page(tmp_path / "page.html", *KINDS["translator"] * 3)
    assert page.count("<h2>") == 3
    assert "3 sentences" in failed("inspect", models["translator"], text, *quick, "--out", tmp_path / "a.svg")
    monkeypatch.setattr("cutaway.inside.questions.translations", lambda *_, **__: [SimpleNamespace(text="xyz" * 99)])
    assert "its translation has 297 tokens" in failed("inspect", models["translator"], "Hi.")
    assert "the target has 297 tokens" in failed("inspect", models["translator"], "Hi.", "--target", "xyz" * 99)


def test_words_of_the_translation_so_far_have_a_mark(models: dict[str, Path]) -> None:
    model, tokenizer = load(models["translator"]), tokenizer_of(models["translator"])
    found = look_inside(model, tokenizer, "the cat", target="a dog", method="gradient_x_input", show=["attribution"])
    assert found.attribution is not None
    picture = to_picture(found.attribution, tokenizer)
    words = found.attribution.words(tokenizer)  # type: ignore[arg-type]
    marked = [source.startswith("‹") and source.endswith("›") for source in picture.sources]  # type: ignore[attr-defined]
    assert marked == [False] * words.parts[0] + [True] * words.parts[1]


def test_a_target_is_spelled_as_the_text_goes_on_and_shown(models: dict[str, Path]) -> None:
    model, tokenizer = load(models["gpt2"]), pieces()
    for text, target, spelled in (("the c", "at", "at"), ("the", "cat", " cat"), ("the ", "cat", "cat")):
        found = data("inspect", models["gpt2"], text, "--target", target, "--show", "answer")
        read, wanted = (tokenizer.encode(one, special=False) for one in (text, spelled))
        ids, start = [*read, *wanted], len(read)
        assert found["outputs"] == [tokenizer.decode([id]) for id in wanted], text
        with torch.no_grad():
            p = model(torch.tensor([ids]))[0].softmax(dim=-1)[range(start - 1, len(ids) - 1), ids[start:]]
        assert near([one["probability"] for one in found["asked"]], p)
        shown = said("inspect", models["gpt2"], text, "--target", target, "--show", "answer")
        for one, its in zip(found["outputs"], p.tolist(), strict=True):
            assert f"asked about «{one}», p = {its:.2g}" in shown
    assert "asked about" not in said("inspect", models["gpt2"], TEXT, "--show", "answer")
    label = data("inspect", models["label"], "a good film", "--target", "1", "--show", "answer")
    assert label["asked"] in [[guess] for guess in label["guesses"][0]]


def test_two_tokens_have_no_look_away_from_themselves_and_the_first(models: dict[str, Path]) -> None:
    text = pieces().decode(pieces().encode(TEXT, special=False)[:3])
    short = pieces().decode(pieces().encode(TEXT, special=False)[:2])
    assert data("inspect", models["gpt2"], short, "--show", "heads")["heads"] == []
    assert "Heads" not in said("inspect", models["gpt2"], short)
    found = data("inspect", models["gpt2"], text, "--show", "heads")["heads"]
    assert {(look["query"], look["key"]) for look in found} == {(2, 1)}
    assert len(found) == 8


def test_a_plain_picture_is_warned_of(models: dict[str, Path], tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8, 3), 7, np.uint8)).save(tmp_path / "plain.png")
    assert "has only one colour" in run("inspect", models["vit"], tmp_path / "plain.png", "--show", "answer").stderr
    assert run("inspect", models["vit"], models["a.png"], "--show", "answer").stderr == ""
