"""Folders for CTranslate2: what can be expressed is, to the last digits; the rest is refused by name."""

import json
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import tokenizers
import torch
from helpers.tiny_models import tiny

from cutaway.checkpoints import export, export_to, to_ctranslate2
from cutaway.checkpoints.agreement import Agreement
from cutaway.errors import CheckpointError, InputError, MissingExtra
from cutaway.model.model import Model
from cutaway.model.precision import with_precision
from cutaway.tokens import Tokenizer

TRANSLATOR: list[dict[str, Any]] = [
    {},
    {"positions": "sinusoidal_halves"},
    {"positions": "learned"},
    {"positions": "rotary"},
    {"positions": "none"},
    {"tied": False},
    {"output_bias": True},
    {"scale_embedding": False},
    {"source_vocab_size": 60},
    {"n_encoder_layers": 1, "n_decoder_layers": 3},
    {"activation": "gelu"},
    {"activation": "gelu_tanh"},
    {"activation": "silu"},
    {"activation": "tanh"},
    {"norm_eps": 0.1},
]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, changes) for name in ("transformer", "transformer-pre-norm") for changes in TRANSLATOR),
    ("t5", {}),
    ("t5", {"gated": True, "activation": "gelu_tanh"}),
    ("t5", {"tied": False, "scale_output": False}),
    ("t5", {"d_head": 8}),
    ("t5", {"n_buckets": 8, "max_distance": 10}),
    ("gpt", {}),
    ("gpt2", {}),
    ("gpt2", {"tied": False, "activation": "relu", "norm_eps": 0.1}),
    ("gpt2", {"start_id": None}),
    ("llama", {}),
    ("llama", {"n_kv_heads": 4}),
    ("llama", {"n_kv_heads": 1}),
    ("llama", {"d_head": 8, "attention_bias": True, "tied": False}),
    ("llama", {"rotary_base": 500.0, "activation": "gelu"}),
    ("llama", {"rotary_scaling": "linear", "rotary_scaling_numbers": (4.0,)}),
    ("llama", {"rotary_scaling": "llama3", "rotary_scaling_numbers": (8.0, 1.0, 4.0, 16.0)}),
    ("llama", {"window": 32}),
]
REFUSED = [
    ("llama", {"window": 31}, "window=31"),
    ("transformer", {"start_id": None}, "set start_id"),
    ("transformer", {"end_ids": None}, "set end_ids"),
    ("gpt2", {"end_ids": None}, "set end_ids"),
    ("transformer", {"task": "hidden"}, "task='hidden'"),
    ("gpt2", {"task": "classify", "n_classes": 3}, "task='classify'"),
    ("bert", {}, "masked_language_model"),
    ("vit", {"start_id": None, "end_ids": None}, "task='classify'"),
]


def model_of(name: str, changes: dict[str, Any]) -> Model:
    return tiny(name, dtype=torch.float32, **{"start_id": 1, "end_ids": (2,), **changes})


def written(model: Model, folder: Path, **options: Any) -> Agreement:
    agreement = export_to(model, folder, options.pop("tokenizer", None), to="ctranslate2", **options)
    assert agreement is not None
    return agreement


def words() -> Tokenizer:
    names = ["<pad>", "<s>", "</s>", *(f"word{n}" for n in range(30))]
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({name: id for id, name in enumerate(names)})))


@pytest.mark.parametrize(("name", "changes"), CASES, ids=str)
def test_what_can_be_expressed_gives_the_same_log_probabilities(name: str, changes: dict[str, Any], tmp_path: Path):
    agreement = written(model_of(name, changes), tmp_path)
    assert agreement.holds
    assert agreement.n > 60
    assert agreement.difference < 1e-4


@pytest.mark.parametrize(("name", "changes", "match"), REFUSED, ids=str)
def test_what_cannot_be_expressed_is_refused_by_name(name: str, changes: dict[str, Any], match: str, tmp_path: Path):
    with pytest.raises(CheckpointError, match=match):
        export(model_of(name, changes), tmp_path / "out", to="ctranslate2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("quantization", ["float32", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("name", ["transformer", "llama"])
def test_quantizing_leaves_the_model_as_it_was(name: str, quantization: str, tmp_path: Path):
    model = model_of(name, {})
    before = {key: value.clone() for key, value in model.state_dict().items()}
    agreement = written(model, tmp_path, quantization=quantization)
    assert agreement.holds
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    size = (tmp_path / "model.bin").stat().st_size / sum(p.numel() for p in model.parameters())
    least, most = {"float32": (4, 6), "int8": (1, 2.5)}.get(quantization, (2, 3.5))
    assert least < size < most
    assert (agreement.difference < 1e-4) == (quantization == "float32"), "rounding has to show"


def test_without_a_word_the_weights_stay_as_wide_as_they_are(tmp_path: Path):
    for dtype in (torch.float64, torch.bfloat16):
        written(model_of("gpt2", {}).to(dtype), tmp_path / str(dtype))
    wide, narrow = ((tmp_path / str(dtype) / "model.bin").stat().st_size for dtype in (torch.float64, torch.bfloat16))
    assert wide > 1.5 * narrow


def test_tokens_have_the_tokenizers_names(tmp_path: Path):
    model = model_of("transformer", {})
    assert written(model, tmp_path, tokenizer=words()).holds
    tokens = json.loads((tmp_path / "shared_vocabulary.json").read_text())
    assert len(tokens) == 50
    assert tokens[:4] == ["<pad>", "<s>", "</s>", "word0"]
    assert tokens[33:35] == ["<unused 33>", "<unused 34>"]  # the model's vocabulary is larger
    assert (tmp_path / "tokenizer.json").exists()
    engine = ctranslate2.Translator(str(tmp_path), inter_threads=1, intra_threads=1)
    assert set(engine.translate_batch([["word3", "</s>"]], max_decoding_length=8)[0].hypotheses[0]) <= set(tokens)
    with pytest.raises(CheckpointError, match="33 tokens, but the model knows 20"):
        export(model_of("gpt2", {"vocab_size": 20}), tmp_path / "small", words(), to="ctranslate2")


@pytest.mark.parametrize(("changes", "read_as"), [({}, "2"), ({"pad_id": 5}, "5")], ids=str)
def test_an_unknown_token_is_read_as_one_of_the_models_and_not_behind_its_matrix(
    changes: dict[str, Any], read_as: str, tmp_path: Path
):
    written(model_of("gpt2", {"start_id": None, **changes}), tmp_path)
    engine = ctranslate2.Generator(str(tmp_path), inter_threads=1, intra_threads=1)
    unknown, known = engine.score_batch([["7", "no such token", "9"], ["7", read_as, "9"]])
    assert unknown.log_probs == known.log_probs
    config = json.loads((tmp_path / "config.json").read_text())
    assert {config["unk_token"], config["bos_token"], config["eos_token"]} == {"2", read_as}


def test_a_wrong_export_is_noticed_and_kept(tmp_path: Path, monkeypatch):
    def nowhere(embedding: Any, max_len: int) -> torch.Tensor:
        return torch.zeros(max_len, embedding.tokens.matrix.shape[1])

    monkeypatch.setattr(to_ctranslate2, "_positions", nowhere)
    with pytest.raises(CheckpointError, match="do not match"):
        export(model_of("gpt2", {}), tmp_path, to="ctranslate2")
    assert (tmp_path / "model.bin").exists()


def test_several_ends_are_pointed_out(tmp_path: Path):
    (note,) = written(model_of("gpt2", {"end_ids": (2, 7)}), tmp_path).notes
    assert "end_token=['2', '7']" in note


def test_wrong_words_and_models_in_training_are_refused(tmp_path: Path):
    model = model_of("gpt2", {})
    with pytest.raises(CheckpointError, match="int4"):
        export(model, tmp_path, to="ctranslate2", quantization="int4")
    with pytest.raises(InputError, match="hf, ctranslate2, onnx"):
        export(model, tmp_path, to="tflite")
    for to in ("hf", "onnx"):
        with pytest.raises(InputError, match="for ctranslate2 only"):
            export(model, tmp_path, to=to, quantization="int8")
    with pytest.raises(CheckpointError, match="was rounded to int8"):
        export(with_precision(model_of("gpt2", {}), "int8"), tmp_path, to="ctranslate2")
    with pytest.raises(InputError, match="in training"):
        export(model.train(), tmp_path, to="ctranslate2")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtra, match="the extra 'ctranslate2'"):
        export(model_of("gpt2", {}), tmp_path / "out", to="ctranslate2")
    assert not (tmp_path / "out").exists()
