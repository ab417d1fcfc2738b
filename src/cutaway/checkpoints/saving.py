"""Writes models: folders of our own, Hugging Face folders, and folders for other engines."""

from pathlib import Path

from cutaway.arguments import checked
from cutaway.checkpoints.agreement import Agreement
from cutaway.checkpoints.model_folder import check_vocabulary, save_folder
from cutaway.checkpoints.output_folder import MODEL, WEIGHTS, check_replaceable
from cutaway.errors import CheckpointError, InputError
from cutaway.folders import check_folder, replacing_folder
from cutaway.model.blocks import has_blocks
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer

ENGINES = ("ctranslate2", "onnx")


@checked
def save(
    model: Model,
    folder: Path | str,
    tokenizer: Tokenizer | None = None,
    *,
    store: str | None = None,
    shard_size: int | None = None,
) -> None:
    """Writes a model folder of our own. `store` rounds its matrices: "int8" with a scale for each row, or "bf16".

    `shard_size` splits the weights into files of so many bytes. A model of our own that is in the folder is replaced,
    all its files at once; without a `tokenizer`, the one in the folder is kept.
    """
    check_replaceable(Path(folder))
    with replacing_folder(Path(folder), MODEL, stale=WEIGHTS) as fresh:
        save_folder(model, fresh, tokenizer, store=store, shard_size=shard_size)


@checked
def export(
    model: Model,
    folder: Path | str,
    tokenizer: Tokenizer | None = None,
    *,
    to: str = "hf",
    quantization: str | None = None,
    force: bool = False,
) -> Agreement | None:
    """Writes a folder that `transformers` loads (`to="hf"`), or one for another engine: "ctranslate2" or "onnx".

    The outputs of an engine are compared with the model's on random inputs, and how far they agree is returned; it is
    an error if they differ too much. `quantization` is CTranslate2's (float32, int8, bfloat16, float16), by default the
    model's own type. `force` replaces the model that is in the folder.
    """
    folder = Path(folder)
    check_folder(folder, MODEL, force=force, shared=True)
    with replacing_folder(folder, MODEL) as fresh:
        agreement = export_to(model, fresh, tokenizer, to=to, quantization=quantization)
    if agreement is not None and not agreement.holds:
        raise CheckpointError(f"{folder}: {agreement}")
    return agreement


def export_to(
    model: Model, folder: Path, tokenizer: Tokenizer | None, *, to: str, quantization: str | None = None
) -> Agreement | None:
    """Writes into a new folder, and returns the agreement of an engine even where it is too low."""
    if to not in ("hf", *ENGINES):
        raise InputError(f"to={to!r} is not one of hf, {', '.join(ENGINES)}")
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"quantization={quantization!r} is for ctranslate2 only: leave it out")
    config = model.config
    if not has_blocks(model):
        raise CheckpointError(f"{config.family} has no layout that other tools read: it runs in Cutaway only")
    check_vocabulary(tokenizer, getattr(config, "vocab_size", 0))
    if to == "hf":
        from cutaway.checkpoints.hf import export_hf, write_config

        try:
            write_config(config)
        except CheckpointError as error:
            others = "to=ctranslate2 or to=onnx" if config.task in ("language_model", "translate") else "to=onnx"
            raise CheckpointError(f"{error}. Train with what it supports, or export with {others}") from None
        export_hf(model, folder, tokenizer)
        return None
    return _export_engine(model, folder, tokenizer, to, quantization)


def _export_engine(
    model: Model, folder: Path, tokenizer: Tokenizer | None, to: str, quantization: str | None
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
