"""Exports for other engines: the model is written, and its outputs there are compared with our own."""

from pathlib import Path

from cutaway.checkpoints.agreement import Agreement
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer

ENGINES = ("ctranslate2", "onnx")


def export_engine(
    model: Model, folder: Path, tokenizer: Tokenizer | None, *, to: str, quantization: str | None = None
) -> Agreement:
    """Writes the folder and returns how far its outputs agree; the folder stays even where they do not."""
    model = uncompiled(model)
    if model.training:
        raise InputError("the model is in training mode, where dropout is random: call model.eval() first")
    if to == "onnx":
        from cutaway.checkpoints.to_onnx import export_onnx, measure_onnx

        export_onnx(model, folder, tokenizer)
        return measure_onnx(model, folder)
    from cutaway.checkpoints.to_ctranslate2 import LIMITS, export_ctranslate2, measure_ctranslate2

    own = str(model.dtype).removeprefix("torch.")
    quantization = quantization or (own if own in LIMITS else "float32")
    export_ctranslate2(model, folder, tokenizer, quantization)
    return measure_ctranslate2(model, folder, tokenizer, quantization)
