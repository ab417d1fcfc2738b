"""What `import` and `export` share: read a model in any layout, write it in one, and say what it was."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.options import Dtype

Kind = Annotated[Dtype, typer.Option("--dtype", help="Of the weights that are written.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the model that is in the folder.")]
NoTokenizer = Annotated[bool, typer.Option("--no-tokenizer", help="Leave the tokenizer behind.")]

# What makes a model folder. With --force, those of an earlier model that the new one does not write are removed: an old
# tokenizer beside a new model would be read as its own. Nothing else in the folder is touched.
MODEL_FILES = """
    config.json generation_config.json preprocessor_config.json model.safetensors model.safetensors.index.json
    certificate.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt vocab.txt
    tokenizer.model model.bin vocabulary.json shared_vocabulary.json source_vocabulary.json target_vocabulary.json
    model.onnx encoder.onnx decoder.onnx model.onnx.data encoder.onnx.data decoder.onnx.data
""".split()


def copy_model(
    source: Path,
    target: Path,
    write: Callable[..., Any],
    *,
    dtype: Dtype,
    no_tokenizer: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Reads the model, writes it with `write(model, folder, tokenizer)`, and prints what it was.

    Of an engine, `write` returns how far its answers are from ours: 1 is the exit code where that is too far.
    """
    import torch
    from rich.console import Console

    from cutaway.checkpoints import load, tokenizer_of

    _check_target(source, target, force)
    with Console(stderr=True).status("") as spinner:
        spinner.update(f"reading {source} …")
        model = load(source, dtype=getattr(torch, dtype.value))
        tokenizer = None if no_tokenizer else tokenizer_of(source)
        before = {_version(file) for file in _files(target)}
        spinner.update(f"writing {target} …")
        agreement = write(model, target, tokenizer)
    written = [file for file in _files(target) if _version(file) not in before]
    for file in _files(target):
        if file not in written and file.name in MODEL_FILES:
            file.unlink()
    found = {
        "from": str(source),
        "to": str(target),
        "family": model.config.family,
        "task": model.config.task,
        "parameters": model.n_parameters(),
        "dtype": dtype.value if agreement is None else agreement.dtype,
        "vocab_size": None if tokenizer is None else tokenizer.vocab_size,
        "files": {file.name: file.stat().st_size for file in written},
    }
    if agreement is not None:
        found["agreement"] = {**dataclasses.asdict(agreement), "holds": agreement.holds}
    print(json.dumps(found, indent=2)) if as_json else _report(found, agreement)
    if agreement is not None and not agreement.holds:
        print("error:", agreement, file=sys.stderr)
        raise typer.Exit(1)


def _check_target(source: Path, target: Path, force: bool) -> None:
    """Nothing is read before it is clear that it may be written."""
    from cutaway.errors import InputError

    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file: name a folder to write")
    if not _files(target):
        return
    if source.exists() and target.samefile(source):
        raise InputError(f"{target} is the model itself: name another folder to write")
    if not force:
        raise InputError(f"{target} is not empty: name another folder, or replace the model in it with --force")
    if not (target / "config.json").exists():
        raise InputError(f"{target} holds other files and no model: name another folder")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _version(file: Path) -> tuple[str, int, int]:
    """Another one after the file was written anew."""
    status = file.stat()
    return file.name, status.st_ino, status.st_mtime_ns


def _report(found: dict[str, Any], agreement: Any) -> None:
    from rich.console import Console

    from cutaway.cli.numbers import human

    console = Console(highlight=False, soft_wrap=True)
    vocab_size, files = found["vocab_size"], found["files"]
    tokenizer = "no tokenizer" if vocab_size is None else f"a tokenizer of {vocab_size:,} tokens"
    console.print(f"read   {found['from']}", markup=False)
    console.print(f"       {found['family']}, {found['task']}, {found['parameters']:,} parameters; {tokenizer}")
    console.print(f"wrote  {found['to']}", markup=False)
    sizes = ", ".join(f"{name} {human(size, 'B')}" for name, size in files.items())
    console.print(f"       {found['dtype']}: {sizes}", markup=False)
    if agreement is not None:
        console.print("\n       ".join([f"tried  {agreement}", *agreement.notes]), markup=False)
