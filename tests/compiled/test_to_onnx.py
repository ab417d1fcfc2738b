"""ONNX graphs in onnxruntime: our numbers for every batch and length, with padding on either side."""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from helpers.tiny_models import some_ids, tiny
from torch import Tensor

from cutaway import watch
from cutaway.checkpoints import export, export_to, load, to_onnx
from cutaway.decoding import greedy_translate
from cutaway.errors import CheckpointError, InputError, MissingExtra
from cutaway.model.model import Model

ONE = {"n_layers": 1}
TWO = {"n_encoder_layers": 1, "n_decoder_layers": 1}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("bert", {**ONE, "task": "classify", "n_classes": 3}),
    ("roformer", {**ONE, "task": "hidden"}),
    ("gpt2", {**ONE, "task": "regress"}),
    ("llama-window", ONE),
    ("vit", ONE),
    ("t5", TWO),
]


def model_of(name: str, changes: dict[str, Any]) -> Model:
    return tiny(name, dtype=torch.float32, **changes)


def ask(file: Path, **inputs: Tensor) -> Tensor:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return torch.from_numpy(found)


@pytest.mark.parametrize(("name", "changes"), CASES, ids=str)
def test_graphs_give_our_numbers_at_every_shape(name: str, changes: dict[str, Any], tmp_path: Path):
    model = model_of(name, changes)
    agreement = export_to(model, tmp_path, None, to="onnx")
    assert agreement is not None
    assert agreement.holds
    assert agreement.share < 1e-5
    for graph in to_onnx.graphs_of(model):
        session = onnxruntime.InferenceSession(str(tmp_path / graph.name), providers=["CPUExecutionProvider"])
        for given in session.get_inputs():
            axes = to_onnx.AXES[given.name]
            assert tuple(given.shape[: len(axes)]) == axes, "free, and named"
        assert [given.name for given in session.get_outputs()] == [graph.output]


def test_two_graphs_translate_as_the_model_does(tmp_path: Path):
    model = model_of("transformer", {**TWO, "tied": False, "start_id": 1, "source_vocab_size": 40})
    export(model, tmp_path, to="onnx")
    source, real = some_ids(4, 9) % 40, torch.arange(9)[None] < torch.tensor([9, 5, 7, 2])[:, None]
    memory = ask(tmp_path / "encoder.onnx", ids=source, real=real)
    ids = torch.ones(4, 1, dtype=torch.long)
    for _ in range(8):
        seen = {"memory": memory, "memory_real": real, "real": torch.ones_like(ids, dtype=torch.bool)}
        logits = ask(tmp_path / "decoder.onnx", ids=ids, **seen)
        ids = torch.cat([ids, logits[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    assert torch.equal(ids[:, 1:], greedy_translate(model, source, n=8, real=real, end_ids=()))


def test_a_row_of_only_padding_is_no_nan(tmp_path: Path):
    model = model_of("gpt2", ONE)
    export(model, tmp_path, to="onnx")
    real = torch.tensor([[True] * 5, [False] * 5])
    logits = ask(tmp_path / "model.onnx", ids=some_ids(2, 5), real=real)
    assert logits.isfinite().all()
    assert torch.allclose(logits, model(some_ids(2, 5), real=real), atol=1e-4)
    with pytest.raises(CheckpointError, match="safetensors"):  # a graph is no model folder
        load(tmp_path)


def test_what_cannot_be_exported_is_refused(tmp_path: Path):
    model, out = model_of("gpt2", ONE), tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"not in torch\.bfloat16"):
        export(model_of("gpt2", ONE).bfloat16(), out, to="onnx")
    with watch(model, "decoder.0.attention.pattern"), pytest.raises(InputError, match="outside of `watch`"):
        export(model, out, to="onnx")
    with pytest.raises(InputError, match="in training"):
        export(model.train(), out, to="onnx")
    assert not out.exists()


@pytest.mark.parametrize("package", ["onnxscript", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"{package}' of the extra 'onnx'"):
        export(model_of("gpt2", ONE), tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()


def test_the_exporter_is_silent_only_while_it_works() -> None:
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    with suppress(MemoryError), to_onnx._quiet():
        assert logger.level == logging.ERROR != before
        raise MemoryError
    assert logger.level == before
