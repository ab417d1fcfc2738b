"""`cutaway patch`: sweeps, estimates and ablations of two texts, as the tools compute them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.inside_commands import check_page, data, failed, pieces, run, said, write_models
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway.checkpoints import load, save
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.estimate import estimate_sweep
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep

CLEAN, CORRUPTED = "the old man ran, and", "the old man ran, dog"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def ids_of(text: str) -> torch.Tensor:
    return torch.tensor([pieces().encode(text, special=False)])


WORDS = ["--right", "a", "--wrong", "e"]


def metric() -> LogitDifference:
    right, wrong = (pieces().encode(word, special=False)[0] for word in "ae")
    return LogitDifference(right, wrong, at=len(ids_of(CLEAN)[0]) - 1)


@pytest.mark.parametrize("over", ["residual", "heads", "attention", "feed_forward"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_data_are_those_of_the_library(models: dict[str, Path], name: str, over: str) -> None:
    found = data("patch", models[name], CLEAN, CORRUPTED, *WORDS, "--over", over, "--layers", "1")
    model = load(models[name])
    expected = patch_sweep(model, ids_of(CLEAN), ids_of(CORRUPTED), metric(), over=over, layers=[1])
    assert found["layers"] == [1]
    assert np.allclose(found["effects"], expected.effects.numpy(), rtol=1e-3, atol=1e-4)
    assert (found["right"], found["wrong"]) == ("a", "e")


def test_the_models_own_answers_serve_where_none_are_given(models: dict[str, Path]) -> None:
    found = data("patch", models["gpt2"], CLEAN, CORRUPTED)
    assert found["clean"] > 0 > found["corrupted"]
    assert (found["clean_text"], found["corrupted_text"]) == (CLEAN, CORRUPTED)


def test_fast_is_an_estimate_and_says_how_good(models: dict[str, Path]) -> None:
    found = data("patch", models["gpt2"], CLEAN, CORRUPTED, *WORDS, "--fast", "--over", "heads")
    model = load(models["gpt2"])
    expected = estimate_sweep(model, ids_of(CLEAN), ids_of(CORRUPTED), metric(), over="heads")
    assert np.allclose(found["effects"], expected.effects.numpy(), rtol=1e-3, atol=1e-4)
    assert found["agreement"]["layers"] == [0, 1]
    assert -1 <= found["agreement"]["pearson"] <= 1
    assert "against exact patches, layers 0, 1" in said("patch", models["gpt2"], CLEAN, CORRUPTED, *WORDS, "--fast")


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
@pytest.mark.parametrize("over", ["residual", "heads"])
def test_ablations(models: dict[str, Path], how: str, over: str) -> None:
    texts = [CLEAN, CORRUPTED] if how == "resample" else [CLEAN]
    found = data("patch", models["gpt2"], *texts, *WORDS, "--ablate", how, "--over", over)
    source = ids_of(CORRUPTED) if how == "resample" else None
    model = load(models["gpt2"])
    expected = ablate_sweep(model, ids_of(CLEAN), metric=metric(), how=how, source=source, over=over)
    assert np.allclose(found["effects"], expected.effects.numpy(), rtol=1e-3, atol=1e-4)
    assert (found["clean_text"], found["corrupted_text"]) == (CLEAN, CORRUPTED if how == "resample" else None)
    shown = said("patch", models["gpt2"], *texts, "--ablate", how, "--over", over)
    assert "What is lost without it" in shown


def test_a_blank_a_label_a_picture_and_a_translation(models: dict[str, Path]) -> None:
    assert data("patch", models["bert"], "the [MASK] barked .", "a [MASK] barked .", "--right", "dog", "--wrong", "cat")
    labels = ["--right", "0", "--wrong", "1"]
    assert data("patch", models["label"], "a good film", "a bad film", *labels)["right"] == "0"
    found = data("patch", models["vit"], models["a.png"], models["b.png"], *labels)
    assert len(found["effects"][0]) == 5
    for stream in ("encoder", "decoder"):
        words = ["--right", "a", "--wrong", "b", "--target", "ab"]
        found = data("patch", models["translator"], "cat", "hat", *words, "--stream", stream)
        assert found["tap"].startswith(stream)
        assert len(found["effects"][0]) == len(found["tokens"][0 if stream == "encoder" else 1])
    assert data("patch", models["translator"], "cat", "hat", *words, "--over", "cross_heads")["heads"]


def test_pictures(models: dict[str, Path], tmp_path: Path) -> None:
    shown = said("patch", models["gpt2"], CLEAN, CORRUPTED)
    assert "what brings the answer back" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    said("patch", models["gpt2"], CLEAN, CORRUPTED, "--out", tmp_path / "page.html")
    assert "Ġ" not in check_page(tmp_path / "page.html", "heat map")


def test_what_cannot_be_compared_is_refused(models: dict[str, Path]) -> None:
    gpt2 = models["gpt2"]
    longer = failed("patch", gpt2, CLEAN, CORRUPTED + " the cat")
    assert "choose words so that both have as many" in longer
    assert longer.count("│") > 4
    assert "a second text is missing" in failed("patch", gpt2, CLEAN)
    assert "resample takes values" in failed("patch", gpt2, CLEAN, "--ablate", "resample")
    assert "one text alone" in failed("patch", gpt2, CLEAN, CORRUPTED, "--ablate", "zero")
    assert "estimates patches" in failed("patch", gpt2, CLEAN, "--ablate", "zero", "--fast")
    assert "both answers are" in failed("patch", gpt2, CLEAN, CORRUPTED, "--right", "a", "--wrong", "a")
    assert "it must be one" in failed("patch", gpt2, CLEAN, CORRUPTED, "--right", "zyxwv")
    assert "no list of numbers" in failed("patch", gpt2, CLEAN, CORRUPTED, "--layers", "x")
    assert "layers 0…1" in failed("patch", gpt2, CLEAN, CORRUPTED, "--layers", "7")
    assert "does not translate" in failed("patch", gpt2, CLEAN, CORRUPTED, "--target", "x")
    assert "is not one of" in failed("patch", models["label"], "a good film", "a bad film", "--right", "x")
    assert run("patch", gpt2, CLEAN, CORRUPTED, "--over", "everything").exit_code == 2
    cross = failed("patch", gpt2, CLEAN, CORRUPTED, "--over", "cross")
    assert "'cross': the decoder of this model has residual, heads, attention, feed_forward;" in cross
    encoder = ["--stream", "encoder", "--over", "cross", "--right", "a", "--wrong", "b"]
    told = run("patch", models["translator"], "a", "b", *encoder)
    assert told.exit_code == 2
    assert "the encoder of this model has residual, heads, attention, feed_forward;" in told.stderr
    assert "its own value" in failed("patch", gpt2, "a", "--ablate", "mean")
    assert "«l» «z»; it must be one: choose another word" in failed("lens", gpt2, "a", "--follow", "lz")


def test_an_answer_of_white_space_is_seen(models: dict[str, Path]) -> None:
    found = data("patch", models["gpt2"], CLEAN, CORRUPTED, "--right", " ", "--wrong", "\n")
    assert (found["right"], found["wrong"]) == ("␣", "↵")


def test_rows_say_whether_a_stream_runs_into_a_block_or_out_of_it(models: dict[str, Path], tmp_path: Path) -> None:
    asked = ["patch", models["gpt2"], CLEAN, CORRUPTED]
    assert data(*asked)["layer_names"] == ["into block 0", "into block 1"]
    assert "into block 1" in said(*asked)
    said(*asked, "--out", tmp_path / "a.svg")
    assert ">into block 1<" in (tmp_path / "a.svg").read_text()
    assert data(*asked, "--over", "heads")["layer_names"] == ["0", "1"]


def test_a_task_that_the_model_fails_is_warned_of(models: dict[str, Path]) -> None:
    assert run("patch", models["gpt2"], CLEAN, CORRUPTED).stderr == ""  # its own answers
    _, right, _, wrong = WORDS
    turned = ["--right", wrong, "--wrong", right]
    good, bad = sorted(
        (WORDS, turned), key=lambda words: -data("patch", models["gpt2"], CLEAN, CORRUPTED, *words)["clean"]
    )
    failing = run("patch", models["gpt2"], CLEAN, CORRUPTED, *bad)
    assert f"this model fails the task: in CLEAN «{bad[1]}» is ahead of «{bad[3]}» by −" in failing.stderr
    assert "-" not in failing.stdout.partition("Patching")[0]
    same = run("patch", models["gpt2"], CLEAN, CLEAN, *good)
    assert "warning: CORRUPTED is no worse" in same.stderr


@pytest.mark.parametrize(
    "words", [["patch", "the cat", "the dog"], ["lens", "the cat"], ["circuit", "--preset", "induction"]], ids=str
)
def test_a_model_without_blocks_is_refused_before_anything_is_looked_at(words: list[str], tmp_path: Path) -> None:
    save(tiny("lstm", vocab_size=400, dtype=torch.float32), tmp_path / "lstm", byte_level())
    assert "lstm is no Transformer, and has no residual stream" in failed(words[0], tmp_path / "lstm", *words[1:])
