"""`cutaway export --to ctranslate2|onnx`: written, tried, and the figures said. (`test_copying.py` has --to hf.)"""

import json
import sys

import ctranslate2
import pytest
import tokenizers
import torch
from helpers.tiny_models import tiny
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import agreement, save
from cutaway.tokens import Tokenizer


def cutaway(*args: object):
    return CliRunner().invoke(cli.app, ["export", *map(str, args)], env={"COLUMNS": "100"})


@pytest.fixture
def folder(tmp_path):
    """A small GPT-2 with a tokenizer."""
    words = [f"w{n}" for n in range(50)]
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: id for id, word in enumerate(words)}))
    save(tiny("gpt2", dtype=torch.float32, end_ids=(2, 3)), tmp_path / "model", Tokenizer(backend))
    return tmp_path / "model"


def test_to_ctranslate2(folder, tmp_path):
    result = cutaway(folder, "--to", "ctranslate2", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "log-probabilities from CTranslate2 match the model's" in result.stdout
    assert "end_token=['w2', 'w3']" in result.stdout
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "config.json", "model.bin", "tokenizer.json", "tokenizer_config.json", "vocabulary.json"
    }  # fmt: skip
    engine = ctranslate2.Generator(str(tmp_path / "out"), inter_threads=1, intra_threads=1)
    assert engine.generate_batch([["w7", "w8"]], max_length=4)[0].sequences[0][:2] == ["w7", "w8"]


def test_quantized_and_as_json(folder, tmp_path):
    found = {}
    for kind in ("float32", "int8"):
        result = cutaway(folder, tmp_path / kind, "--to", "ctranslate2", "--quantization", kind, "--json")
        assert result.exit_code == 0, result.output
        found[kind] = json.loads(result.stdout)
        assert found[kind]["agreement"]["holds"]
        assert found[kind]["dtype"] == kind
    assert found["int8"]["files"]["model.bin"] < 0.6 * found["float32"]["files"]["model.bin"]
    assert found["float32"]["agreement"]["difference"] < 1e-4 < found["int8"]["agreement"]["difference"]
    assert cutaway(folder, tmp_path / "hf", "--quantization", "int8").exit_code == 2


def test_other_answers_exit_with_1_and_keep_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(agreement.Agreement, "share", 1.0)
    result = cutaway(folder, "--to", "ctranslate2", tmp_path / "out")
    assert result.exit_code == 1
    assert "do not match the model's" in result.stderr
    assert (tmp_path / "out" / "model.bin").exists()


@pytest.mark.parametrize(("to", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnxruntime")])
def test_a_missing_extra_is_named(folder, tmp_path, to, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    result = cutaway(folder, "--to", to, tmp_path / "out")
    assert result.exit_code == 2
    assert f"the extra '{to}' is not installed" in result.stderr
    assert not (tmp_path / "out").exists()


def test_what_is_replaced_leaves_nothing_of_the_other_layout(folder, tmp_path):
    out = tmp_path / "out"
    assert cutaway(folder, "--to", "ctranslate2", out).exit_code == 0
    assert cutaway(folder, "--to", "hf", out, "--force", "--no-tokenizer").exit_code == 0
    assert {file.name for file in out.iterdir()} == {"config.json", "model.safetensors"}
