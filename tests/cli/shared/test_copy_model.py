"""`cutaway import` and `cutaway export`."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import load, load_tokenizer, save
from cutaway.families import build

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
IDS = torch.tensor([[3, 1, 4, 1, 5]])


def cutaway(*args: object):
    return CliRunner().invoke(cli.app, list(map(str, args)), env={"COLUMNS": "100"})


@pytest.fixture
def published(tmp_path):
    """A tiny GPT-2 as `transformers` saves it, with a tokenizer."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=24, n_head=4, vocab_size=50, n_positions=32, bos_token_id=1, eos_token_id=2
    )
    folder = tmp_path / "published"
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    backend = Tokenizer(models.WordLevel({word: id for id, word in enumerate("the cat sat on a mat".split())}, "the"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_import_makes_a_folder_of_our_own(published, tmp_path):
    result = cutaway("import", published, tmp_path / "ours")
    assert result.exit_code == 0, result.output
    assert "gpt2, language_model, 16,464 parameters; a tokenizer of 6 tokens" in result.stdout
    theirs = transformers.GPT2LMHeadModel.from_pretrained(published).eval()
    ours = load(tmp_path / "ours")
    with torch.no_grad():
        assert torch.allclose(ours(IDS), theirs(IDS).logits, atol=1e-5)
    assert "family" in json.loads((tmp_path / "ours" / "config.json").read_text())
    assert load_tokenizer(tmp_path / "ours").encode("a cat") == [4, 1]


def test_export_gives_back_what_was_imported(published, tmp_path):
    cutaway("import", published, tmp_path / "ours")
    result = cutaway("export", tmp_path / "ours", "--to", "hf", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["family"], found["task"], found["parameters"]) == ("gpt2", "language_model", 16464)
    assert (found["dtype"], found["vocab_size"]) == ("float32", 6)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= found["files"].keys()
    assert found["files"]["model.safetensors"] > 4 * 16464
    first, again = (transformers.GPT2LMHeadModel.from_pretrained(f).eval() for f in (published, tmp_path / "out"))
    with torch.no_grad():
        assert torch.equal(first(IDS).logits, again(IDS).logits)


def test_dtype_and_tokenizer_can_be_chosen(published, tmp_path):
    found = json.loads(
        cutaway("import", published, tmp_path / "ours", "--dtype", "bfloat16", "--no-tokenizer", "--json").stdout
    )
    assert found["vocab_size"] is None
    assert found["files"]["model.safetensors"] < 2.5 * 16464
    assert not (tmp_path / "ours" / "tokenizer.json").exists()


def test_a_tokenizer_that_is_not_read_names_the_option(published, tmp_path):
    (published / "tokenizer.json").rename(published / "spiece.model")
    refused = cutaway("import", published, tmp_path / "ours")
    assert refused.exit_code != 0
    assert "--no-tokenizer" in refused.stderr
    assert not (tmp_path / "ours").exists()
    assert cutaway("import", published, tmp_path / "ours", "--no-tokenizer").exit_code == 0


def test_a_model_that_the_layout_refuses_leaves_nothing_behind(tmp_path):
    save(build("gpt", n_layers=1, d_model=12, n_heads=2, d_ff=8, vocab_size=9), tmp_path / "gpt")
    refused = cutaway("export", tmp_path / "gpt", tmp_path / "out")
    assert refused.exit_code != 0
    assert "d_ff" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_says_so(tmp_path):
    save(build("vit-ti-16", n_layers=1, d_model=12, n_heads=2, d_ff=8, n_classes=3), tmp_path / "vit")
    assert "no tokenizer" in cutaway("export", tmp_path / "vit", tmp_path / "out").stdout


def test_a_full_folder_is_kept_until_force(published, tmp_path):
    target = tmp_path / "ours"
    cutaway("import", published, target)
    (target / "notes.txt").write_text("mine")
    (target / "preprocessor_config.json").write_text("{}")
    weights = (target / "model.safetensors").stat().st_mtime_ns
    refused = cutaway("import", published, target)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "is not empty" in refused.stderr
    assert (target / "model.safetensors").stat().st_mtime_ns == weights
    assert cutaway("import", published, target, "--force", "--no-tokenizer").exit_code == 0
    assert (target / "model.safetensors").stat().st_mtime_ns != weights
    assert not (target / "tokenizer.json").exists()  # the earlier model's
    assert not (target / "preprocessor_config.json").exists()
    assert (target / "notes.txt").read_text() == "mine"


def test_force_replaces_models_and_nothing_else(published, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    refused = cutaway("import", published, tmp_path / "photos", "--force")
    assert refused.exit_code == 2
    assert "holds other files and no model" in refused.stderr
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize("command", ["import", "export", "pack"])
def test_a_config_of_another_program_is_no_model(command, published, tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    mine = {"config.json": '{"port": 80}', "vocab.txt": "mine", "tokenizer.json": "{}", "README.md": "mine"}
    for name, text in mine.items():
        (app / name).write_text(text)
    refused = cutaway(command, published, app, "--force")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "holds other files and no model" in refused.stderr
    assert {file.name: file.read_text() for file in app.iterdir()} == mine


WEIGHTS = ["model.safetensors", "model-00001-of-00002.safetensors", "model.bin", "model.onnx", "encoder.onnx"]


@pytest.mark.parametrize("weights", [*WEIGHTS, "pytorch_model.bin"])
def test_a_config_with_weights_beside_it_is_a_model_that_force_replaces(weights, published, tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("config.json", weights):
        (tmp_path / "out" / name).write_text("{}")
    assert cutaway("import", published, tmp_path / "out", "--force").exit_code == 0


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_model_is_not_written_over_itself(command, published):
    refused = cutaway(command, published, published, "--force")
    assert refused.exit_code == 2
    assert "is the model itself" in refused.stderr


@pytest.mark.parametrize("command", ["import", "export"])
def test_what_is_not_there_is_named_and_nothing_is_written(command, tmp_path):
    refused = cutaway(command, tmp_path / "nothing", tmp_path / "out")
    assert refused.exit_code == 2
    assert "does not exist" in refused.stderr
    assert not (tmp_path / "out").exists()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    assert "does not exist" in cutaway(command, tmp_path / "nothing", tmp_path, "--force").stderr
    (tmp_path / "file").write_text("x")
    assert "is a file" in cutaway(command, tmp_path, tmp_path / "file").stderr


def test_layouts_that_are_not_written_are_not_offered(published, tmp_path):
    assert cutaway("export", published, "--to", "tflite", tmp_path / "out").exit_code == 2
