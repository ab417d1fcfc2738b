"""The folder that a model is exported to: what lies there is not replaced by accident, and nothing old stays behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from cutaway.errors import InputError

# What makes a model folder. Those of an earlier model that the new one does not write are removed: an old tokenizer
# beside a new model would be read as its own. Nothing else in the folder is touched.
MODEL_FILES = """
    config.json generation_config.json preprocessor_config.json model.safetensors model.safetensors.index.json
    model-*-of-*.safetensors
    certificate.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt vocab.txt
    tokenizer.model model.bin vocabulary.json shared_vocabulary.json source_vocabulary.json target_vocabulary.json
    model.onnx encoder.onnx decoder.onnx model.onnx.data encoder.onnx.data decoder.onnx.data
""".split()


def check_target(target: Path, force: bool, *, by: str = "force=True") -> None:
    """A folder that is new or empty, or with `force` a model's; `by` is how one says so."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file: name a folder to write")
    if not files_in(target):
        return
    if not force:
        raise InputError(f"{target} is not empty: name another folder, or replace the model in it with {by}")
    if not (target / "config.json").exists():
        raise InputError(f"{target} holds other files and no model: name another folder")


@contextmanager
def replacing_model(target: Path) -> Iterator[list[Path]]:
    """Whoever writes a model into the folder; the list names its files afterwards, and those of an earlier are gone."""
    before = {_version(file) for file in files_in(target)}
    written: list[Path] = []
    yield written
    written += [file for file in files_in(target) if _version(file) not in before]
    for file in files_in(target):
        if file not in written and any(fnmatch(file.name, known) for known in MODEL_FILES):
            file.unlink()


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _version(file: Path) -> tuple[str, int, int]:
    """Another one after the file was written anew."""
    status = file.stat()
    return file.name, status.st_ino, status.st_mtime_ns
