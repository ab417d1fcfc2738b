"""`cutaway lens`: the grid, words that are followed, a lens that is trained and looked through."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.classifiers import wordpiece as without_blanks
from helpers.inside_commands import ASKED, MORE, TEXT, check_page, data, failed, pieces, run, said, write_models
from helpers.masked_models import wordpiece

from cutaway.checkpoints import load
from cutaway.cli.lens_tune import _with_blanks
from cutaway.errors import InputError
from cutaway.inside.residual.logit_lens import logit_lens
from cutaway.inside.residual.tuned_lens import TunedLens
from cutaway.pictures import LensGrid, read_picture


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def test_the_data_are_those_of_the_library(models: dict[str, Path]) -> None:
    model, tokenizer = load(models["gpt2"]), pieces()
    found = data("lens", models["gpt2"], TEXT, "--follow", "the", "--top", 3)
    ids = torch.tensor([tokenizer.encode(TEXT, special=False)])
    follow = tokenizer.encode(" the", special=False)
    expected = logit_lens(model, ids, top=3, tokens=follow)
    assert np.array(found["top_tokens"]).tolist() == expected.top_tokens.tolist()
    for name in ("top_probabilities", "token_probability", "kl", "entropy"):
        assert np.allclose(found[name], getattr(expected, name).numpy(), atol=1e-6)
    assert found["tokens"] == follow
    assert found["layer_names"] == ["embedding", "after block 0", "after block 1"]
    assert [text for text in found["position_texts"] if "�" in text] == ["na�", "�ve"]
    plain = data("lens", models["gpt2"], "the dog ran")
    assert "".join(plain["position_texts"]) == "the dog ran"
    assert all(str(id) in found["texts"] for id in expected.top_tokens[-1, 0, :, 0].tolist())


@pytest.mark.parametrize("name", [*ASKED, "vit"])
def test_every_kind_of_model(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    text = models["a.png"] if name == "vit" else ASKED[name]
    more = MORE.get(name, [])
    shown = said("lens", models[name], text, *more)
    assert "embedding" in shown
    assert "Ġ" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    said("lens", models[name], text, *more, "--out", tmp_path / "page.html")
    check_page(tmp_path / "page.html", "lens")
    said("lens", models[name], text, *more, "--out", tmp_path / "a.svg")
    assert isinstance(read_picture(tmp_path / "a.svg"), LensGrid)
    assert ">after block 0<" in (tmp_path / "a.svg").read_text()


def test_an_encoder_is_read_by_its_decoder(models: dict[str, Path]) -> None:
    found = data("lens", models["translator"], "Hi", "--stream", "encoder", "--target", "a dog")
    assert found["layers"][0] == "encoder.0.residual_before"
    assert data("lens", models["translator"], "Hi", "--target", "a dog")["layers"][0].startswith("decoder.0")


def test_followed_words_have_a_page_and_a_table(models: dict[str, Path], tmp_path: Path) -> None:
    shown = said("lens", models["gpt2"], TEXT, "--follow", "the", "--follow", "a")
    assert shown.count("at the last position") == 2
    found = data("lens", models["gpt2"], TEXT, "--follow", "the", "--follow", "a")
    ranks, probabilities = found["token_rank"], found["token_probability"]
    for number, table in enumerate(shown.split("at the last position: rank, probability")[1:]):
        rows = [line for line in table.splitlines() if line.startswith(("  embedding", "  after block"))]
        places = [f"{layer[0][-1][number] + 1:,}." for layer in reversed(ranks)]  # the likeliest is the first
        assert [row.removeprefix("  after block").split()[1] for row in rows] == places
        chances = [f"{layer[0][-1][number]:.1%}" for layer in reversed(probabilities)]
        assert [row.split()[-1] for row in rows] == chances
    assert "␣  at the last position" in said("lens", models["gpt2"], TEXT, "--follow", " ")
    said("lens", models["gpt2"], TEXT, "--follow", "the", "--out", tmp_path / "page.html")
    check_page(tmp_path / "page.html", "lens", "lens")


def test_a_lens_is_trained_and_looked_through(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text((TEXT + " the cat sat down.\n") * 40)
    made = ["--tune", tmp_path / "text.txt", "--out", tmp_path / "lens.safetensors", "--steps", 6]
    told = data("lens", models["gpt2"], *made)
    assert told["kl_tuned"]["decoder.0.residual_before"] < told["kl"]["decoder.0.residual_before"]
    assert "is there: name another file, or replace it with --force" in failed("lens", models["gpt2"], *made)
    assert "tuned lens" in said("lens", models["gpt2"], *made, "--force")
    found = data("lens", models["gpt2"], TEXT, "--tuned", tmp_path / "lens.safetensors")
    model, tokenizer = load(models["gpt2"]), pieces()
    ids = torch.tensor([tokenizer.encode(TEXT, special=False)])
    expected = logit_lens(model, ids, tuned=TunedLens.load(tmp_path / "lens.safetensors", model))
    assert np.allclose(found["kl"], expected.kl.numpy(), atol=1e-6)
    assert "another model" in failed("lens", models["llama"], TEXT, "--tuned", tmp_path / "lens.safetensors")


@pytest.mark.parametrize(("name", "side"), [("bert", "encoder"), ("translator", "decoder")])
def test_a_lens_for_blanks_and_for_translations(models: dict[str, Path], tmp_path: Path, name: str, side: str) -> None:
    (tmp_path / "text.txt").write_text("".join(f"{TEXT} the cat sat down{'.' * (i % 3)}\n" for i in range(40)))
    made = ["--tune", tmp_path / "text.txt", "--out", tmp_path / "lens.safetensors", "--steps", 12]
    told = data("lens", models[name], *made)
    first = f"{side}.0.residual_before"
    assert told["kl_tuned"][first] < told["kl"][first]
    assert told["kl"][list(told["kl"])[-1]] < 1e-6
    found = data("lens", models[name], ASKED[name], *MORE.get(name, []), "--tuned", tmp_path / "lens.safetensors")
    assert found["layers"][0] == first


def test_a_model_for_blanks_learns_its_lens_from_blanks() -> None:
    tokenizer = wordpiece()
    word = tokenizer.id("dog")
    rows = torch.full((50, 40), word)
    read = _with_blanks(rows, tokenizer)
    assert set(read[:, 0].tolist()) == {tokenizer.cls_id}
    assert set(read[:, -1].tolist()) == {tokenizer.sep_id}
    assert 0.1 < (read == tokenizer.mask_id).float().mean() < 0.2
    assert (rows == word).all()  # a copy
    with pytest.raises(InputError, match="no token for a blank"):
        _with_blanks(rows, without_blanks())


def test_what_cannot_be_read_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    gpt2 = models["gpt2"]
    assert "a text is missing" in failed("lens", gpt2)
    assert "is empty" in failed("lens", gpt2, "")
    many = failed("lens", gpt2, TEXT, "--follow", "zyxwv")
    assert "tokens here" in many
    assert "it must be one" in many
    assert "answers with labels" in failed("lens", models["label"], "a film", "--follow", "film")
    assert "no stream 'encoder'" in failed("lens", gpt2, TEXT, "--stream", "encoder")
    (tmp_path / "short.txt").write_text("the dog")
    tune = ["--tune", tmp_path / "short.txt"]
    assert "needs a place" in failed("lens", gpt2, *tune)
    assert ".safetensors" in failed("lens", gpt2, *tune, "--out", tmp_path / "a.html")
    out = ["--out", tmp_path / "a.safetensors"]
    assert "are the least" in failed("lens", gpt2, *tune, *out)
    assert "models that say words" in failed("lens", models["label"], *tune, *out)
    assert "--to is for translators" in failed("lens", gpt2, *tune, *out, "--to", "de")
    assert "1 sentences: 2 are the least" in failed("lens", models["translator"], *tune, *out)
    assert "in a second call" in failed("lens", gpt2, TEXT, *tune, *out)
    for ignored in (["--stream", "decoder"], ["--follow", "a"], ["--target", "a"], ["--tuned", "a"]):
        assert f"{ignored[0]} is for looking through a lens" in failed("lens", gpt2, *tune, *out, *ignored)
    assert "does not translate" in failed("lens", models["vit"], models["a.png"], "--to", "de")
    for name in ("gpt2", "bert", "label"):
        assert "does not translate" in failed("lens", models[name], ASKED[name], "--target", "dog")
    assert "cannot be read" in failed("lens", gpt2, "--tune", tmp_path / "none.txt", *out)
    assert run("lens", gpt2, TEXT, "--tuned", tmp_path / "none.safetensors").exit_code == 2
    assert json.dumps(data("lens", gpt2, "the"))
