"""The folder that a model is written to: nothing is replaced by accident, and nothing of an old model stays behind."""

from pathlib import Path

from cutaway.errors import CheckpointError, InputError
from cutaway.files import read_json
from cutaway.folders import Kind, files_in, finish_replacing

# Files of an earlier model that the new one does not write are removed: an old tokenizer beside a new model would be
# taken for its own. Nothing else in the folder is touched.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors")
MODEL = Kind("model", "config.json", (*WEIGHTS, *"""
    config.json generation_config.json preprocessor_config.json
    certificate.json tokenizer.json tokenizer_config.json chat_template.jinja special_tokens_map.json
    vocab.json merges.txt vocab.txt tokenizer.model model.bin
    vocabulary.json shared_vocabulary.json source_vocabulary.json target_vocabulary.json
    model.onnx encoder.onnx decoder.onnx model.onnx.data encoder.onnx.data decoder.onnx.data
""".split()), beside=("*.safetensors", "*.bin", "*.onnx"))  # fmt: skip


def check_replaceable(folder: Path) -> None:
    """Refuses a folder with files of a model that we did not write; a model of our own may be replaced."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder to write")
    finish_replacing(folder)
    there = [file.name for file in files_in(folder) if MODEL.knows(file.name)]
    if there and not _is_own(folder):
        raise InputError(f"{folder} has a {there[0]} that Cutaway did not write: name another folder, or remove it")


def _is_own(folder: Path) -> bool:
    try:
        return "family" in read_json(folder / MODEL.seal)
    except CheckpointError:
        return False
