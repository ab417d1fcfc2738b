"""A model as ONNX graphs, which onnxruntime and others run. Batch and length are dynamic; `real` is False at padding.

model.onnx     ids, real (segments) → logits or hidden states; of a Vision Transformer: images → logits
encoder.onnx   ids, real → memory                                   of an encoder–decoder, these two
decoder.onnx   ids, real, memory, memory_real → logits              no KV cache: every call reads all of ids
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.checkpoints.agreement import Agreement, compare_answers, longest_text, random_ids
from cutaway.errors import CheckpointError, InputError, MissingExtra
from cutaway.files import write_json
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import edit, watching
from cutaway.tokens import Tokenizer

LIMIT = 1e-4
SHAPES = ((1, 1, 3), (1, 7, 1), (3, 12, 5), (2, 40, 40))  # batch, tokens, tokens of the memory
AXES = {
    "ids": ("batch", "seq"),
    "real": ("batch", "seq"),
    "segments": ("batch", "seq"),
    "images": ("batch",),
    "memory": ("batch", "source"),
    "memory_real": ("batch", "source"),
}


class ModelGraph(nn.Module):
    """ids, real (segments) → the output of the head."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        more = {} if segments is None else {"segments": segments}
        return self.model(ids, real=real, **more)


class EncoderGraph(ModelGraph):
    """ids, real → memory."""

    def forward(self, ids: Tensor, real: Tensor) -> Tensor:  # type: ignore[override]
        return self.model.encode(ids, real)


class DecoderGraph(ModelGraph):
    """ids, real, memory, memory_real → the output of the head."""

    def forward(self, ids: Tensor, real: Tensor, memory: Tensor, memory_real: Tensor) -> Tensor:  # type: ignore[override]
        hidden = self.model.decode(ids, memory=memory, memory_real=memory_real, real=real)
        return self.model.head(hidden, real)


class ImageGraph(ModelGraph):
    """images → the output of the head."""

    def forward(self, images: Tensor) -> Tensor:  # type: ignore[override]
        return self.model(images)


@dataclass(frozen=True)
class Graph:
    """One file: its name, what it computes, its inputs and its output."""

    name: str
    part: ModelGraph
    inputs: tuple[str, ...]
    output: str


def graphs_of(model: Model) -> list[Graph]:
    output = "hidden" if model.config.task == "hidden" else "logits"
    if isinstance(model, EncoderDecoderModel):
        memory = ("ids", "real", "memory", "memory_real")
        encoder = Graph("encoder.onnx", EncoderGraph(model), ("ids", "real"), "memory")
        return [encoder, Graph("decoder.onnx", DecoderGraph(model), memory, output)]
    if hasattr(model.config, "image_size"):
        return [Graph("model.onnx", ImageGraph(model), ("images",), output)]
    segments = ("segments",) if getattr(model.config, "n_segments", 1) > 1 else ()
    return [Graph("model.onnx", ModelGraph(model), ("ids", "real", *segments), output)]


def export_onnx(model: Model, folder: Path, tokenizer: Tokenizer | None) -> None:
    """Writes the graphs, our config.json and tokenizer."""
    if model.dtype != torch.float32:
        raise CheckpointError(f"ONNX graphs are written in float32, not in {model.dtype}: use model.float()")
    if model.device.type != "cpu":
        raise CheckpointError(f"ONNX graphs are written from the CPU, not from {model.device}: use model.cpu()")
    if any(buffer.dtype == torch.int8 for buffer in model.buffers()):
        raise CheckpointError("this model was rounded to int8: export the model before rounding")
    if watching(model):
        raise InputError("the graph would contain what is watched or edited: export outside of `watch` and `edit`")
    _package("onnxscript")
    _package("onnxruntime")
    programs = {}
    for graph in graphs_of(model):
        args = example(model, graph, 3, 9, 5)
        axes = {name: dict(enumerate(AXES[name])) for name in graph.inputs}
        names: Any = {"input_names": list(graph.inputs), "output_names": [graph.output], "dynamic_shapes": axes}
        # An edit of the pattern selects the explicit computation of attention, whose operators every runtime has.
        with _quiet(), torch.no_grad(), edit(model, {"*.pattern": lambda pattern: pattern}):
            try:
                program = torch.onnx.export(graph.part.eval(), args, dynamo=True, verbose=False, **names)
            except torch.onnx.OnnxExporterError as error:
                raise CheckpointError(
                    f"torch cannot make {graph.name} of this {model.config.family}: {error}"
                ) from None
        assert program is not None
        programs[graph.name] = program
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        program.save(folder / name)
    if tokenizer is not None:
        tokenizer.write(folder)
    write_json(folder / "config.json", model.config.to_dict())


def measure_onnx(model: Model, folder: Path) -> Agreement:
    """Compares each graph in onnxruntime with the model, on inputs of several shapes, padded left and right."""
    ort, pairs = _package("onnxruntime"), []
    for graph in graphs_of(model):
        session = ort.InferenceSession(str(folder / graph.name), providers=["CPUExecutionProvider"])
        for shape in SHAPES:
            args = example(model, graph, *shape)
            (theirs,) = session.run(None, {name: x.numpy() for name, x in zip(graph.inputs, args, strict=True)})
            with torch.no_grad():
                pairs.append((graph.part(*args), torch.from_numpy(theirs)))
    return compare_answers("onnxruntime", "float32", "numbers", pairs, LIMIT)


def example(model: Any, graph: Graph, batch: int, seq: int, source: int) -> tuple[Tensor, ...]:
    """Random inputs; the first row is padded on the right and the second on the left."""
    seq, source = longest_text(model, seq), longest_text(model, source)
    ids = getattr(model, "source_vocab_size", None) if graph.output == "memory" else None

    def random_input(name: str) -> Tensor:
        match name:
            case "images":
                c = model.config
                return _noise(batch, c.n_channels, c.image_size, c.image_size)
            case "memory":
                return _noise(batch, source, model.config.d_model)
            case "ids":
                return random_ids(batch, seq, ids or model.config.vocab_size, seed=seq)
            case "segments":
                return random_ids(batch, seq, model.config.n_segments, seed=seq + 1)
        real = torch.ones(batch, seq if name == "real" else source, dtype=torch.bool)
        n = real.shape[1]
        real[0, n - n // 3 :] = False
        real[1:2, : n // 4] = False
        return real

    return tuple(random_input(name) for name in graph.inputs)


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter's notes about itself, which a user cannot act on."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(name, "onnx") from None
