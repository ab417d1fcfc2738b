"""Copies a model from one folder or file to another, in another format: what `import`, `export` and `pack` do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Literal, NamedTuple

import torch

from cutaway.arguments import checked
from cutaway.checkpoints.agreement import Agreement, compare_answers
from cutaway.checkpoints.loading import find_model, load, tokenizer_of
from cutaway.checkpoints.model_folder import save_folder
from cutaway.checkpoints.output_folder import MODEL
from cutaway.checkpoints.packed import STORES
from cutaway.errors import CheckpointError, InputError
from cutaway.folders import check_folder, files_in, replacing_folder
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

Write = Callable[[Model, Path, Tokenizer | None], Agreement | None]
COMPANIONS = ("README.md", "LICENSE", "recipe.toml")  # kept beside a packed model; the recipe says how texts are split
LIMIT = 0.5  # of the largest output: a larger difference is a bug; a smaller one is what rounding costs


class Conversion(NamedTuple):
    """What was read and written."""

    model: Model
    tokenizer: Tokenizer | None
    files: dict[str, int]  # name → bytes
    agreement: Agreement | None  # of the outputs before and after, where they can differ


def convert(
    source: Path,
    target: Path,
    write: Write,
    *,
    dtype: torch.dtype = torch.float32,
    tokenizer: bool = True,
    force: bool = False,
    force_option: str = "force=True",
    progress: Callable[[str], None] = lambda message: None,
) -> Conversion:
    """Reads a model and writes it with `write(model, new folder, tokenizer)`; `force` replaces a model in `target`.

    `force_option` is how an error message names `force`.
    """
    if files_in(target) and source.exists() and target.samefile(source):
        raise InputError(f"{target} is the model itself: name another folder to write")
    check_folder(target, MODEL, force=force, by=force_option, shared=True)
    progress(f"reading {source} …")
    model, own = load(source, dtype=dtype), tokenizer_of(source) if tokenizer else None
    progress(f"writing {target} …")
    with replacing_folder(target, MODEL) as fresh:
        agreement = write(model, fresh, own)
        files = {file.name: file.stat().st_size for file in files_in(fresh)}
    return Conversion(model, own, files, agreement)


@checked
def import_model(
    source: Path | str,
    folder: Path | str,
    *,
    tokenizer: bool = True,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
) -> None:
    """Makes a model folder of our own from a published model, and its tokenizer if it has one.

    `force` replaces the model that is in the folder.
    """
    convert(find_model(source), Path(folder), save_folder, dtype=dtype, tokenizer=tokenizer, force=force)


@checked
def pack(
    source: Path | str,
    folder: Path | str,
    *,
    store: Literal["int8", "bf16"] = "int8",
    shard_size: int | None = None,
    tokenizer: bool = True,
    force: bool = False,
) -> Agreement:
    """Writes a model folder that is a quarter as large (`store="int8"`), or half (`"bf16"`), and measures the rounding.

    pack("runs/gpt", "runs/gpt-int8")        # how far the outputs of the packed model are from those of the model

    `shard_size` splits the weights into files of so many bytes. `force` replaces the model that is in the folder.
    """
    path = find_model(source)
    write = partial(write_packed, path, store=store, shard_size=shard_size)
    agreement = convert(path, Path(folder), write, tokenizer=tokenizer, force=force).agreement
    assert agreement is not None
    if not agreement.holds:
        raise CheckpointError(f"{folder}: {agreement}")
    return agreement


def write_packed(
    source: Path, model: Model, folder: Path, tokenizer: Tokenizer | None, *, store: str, shard_size: int | None = None
) -> Agreement:
    """Writes the packed weights, the card, licence and recipe of the source, and measures what the rounding costs."""
    save_folder(model, folder, tokenizer, store=store, shard_size=shard_size)
    for name in COMPANIONS:
        if (source / name).is_file():
            copyfile(source / name, folder / name)
    return measure_packed(model, load(folder), store)


@torch.no_grad()
def measure_packed(model: Model, packed: Model, store: str) -> Agreement:
    """The outputs of both models on the same random inputs: what the rounding costs."""
    from cutaway.checkpoints.to_onnx import SHAPES, example, graphs_of

    pairs = []
    for ours, theirs in zip(graphs_of(model), graphs_of(packed), strict=True):
        for shape in SHAPES:
            args = example(model, ours, *shape)
            pairs.append((ours.part(*args), theirs.part(*args)))
    return compare_answers(f"weights in {store}", STORES[store], "numbers", pairs, LIMIT)
