"""Models on disk: our own folders, and what others have published. No pickle is read, nothing in a folder is run.

model = load("folder")            # ours, or in the Hugging Face layout; a .gguf file; a llama2.c .bin file
model = load("en-de")             # one that is here by name: `cutaway models` lists them
tokenizer = load_tokenizer(…)     # of the same places
save(model, "folder", tokenizer)  # ours
export(model, "folder")           # in the Hugging Face layout; to="ctranslate2" or "onnx" for those engines
import_model(source, "folder")    # from any of them to ours
"""

from collections.abc import Callable
from pathlib import Path

import torch

from cutaway.arguments import checked
from cutaway.bundled import find
from cutaway.checkpoints.agreement import Agreement
from cutaway.checkpoints.engine_export import ENGINES, export_engine
from cutaway.checkpoints.gguf import load_gguf
from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.checkpoints.hf import config_out, export_hf, load_hf
from cutaway.checkpoints.llama2c import load_llama2c, open_llama2c
from cutaway.checkpoints.model_folder import check_vocabulary, load_folder, save_folder
from cutaway.checkpoints.output_folder import MODEL, WEIGHTS, refuse_others_model
from cutaway.checkpoints.read_config import READABLE, check_ended
from cutaway.errors import CheckpointError, InputError
from cutaway.families import sizes
from cutaway.files import MEGABYTE, read_bytes, read_json
from cutaway.folders import check_folder, replacing_folder
from cutaway.model.blocks import has_blocks
from cutaway.model.device import usable_device
from cutaway.model.model import Model
from cutaway.model.precision import Precision, with_precision
from cutaway.tokens import Tokenizer, find_tokenizer, gguf_tokenizer, llama2c_tokenizer

OTHERS = {  # folders that other commands read
    "ngrams.json": "an n-gram model: cutaway ngram {}",
    "vectors.npy": "word vectors: cutaway embed --model {} --near WORD",
    "compare.json": "a comparison: its models are in {}/models",
}
LLAMA2C_TOKENIZER = "tokenizer.bin"  # beside its model


@checked
def load(
    path: Path | str,
    *,
    precision: Precision | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Model:
    """The model in a folder or file, whatever its layout, or of a name, in evaluation mode (dropout off).

    `precision` is "fp32", "bf16" or "int8", the fastest on a CPU; `dtype` names any floating-point type of the weights.
    """
    path, device = _found(path), usable_device(device)
    if precision is not None and dtype is not torch.float32:
        raise InputError(f"precision={precision!r} and dtype={dtype} both say how weights are held: give one of them")
    if not dtype.is_floating_point:
        raise InputError(f"dtype={dtype} has no fractions: give torch.float32, torch.bfloat16 or torch.float16")
    model = _reader(path)(path, dtype=dtype, device=device).eval()
    return model if precision is None else with_precision(model, precision)


@checked
def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer that came with a model, whatever the layout; an error where none did."""
    found = tokenizer_of(path)
    if found is None:
        raise CheckpointError(f"{path} has no tokenizer")
    return found


@checked
def save(
    model: Model,
    folder: Path | str,
    tokenizer: Tokenizer | None = None,
    *,
    store: str | None = None,
    shard_size: int | None = None,
) -> None:
    """Writes a model folder of our own. `store` rounds its matrices: int8 with a scale for each row, or bf16.

    `shard_size` splits the weights into files of so many bytes. A model of our own that is in the folder is replaced,
    all its files at once; without a `tokenizer` it keeps the one that is there.
    """
    refuse_others_model(Path(folder))
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
    """Writes a folder that `transformers` loads, or one for an engine: ctranslate2 or onnx.

    What an engine answers is held against the model on random inputs. How far it is from ours is returned; an error
    says when that is too far. `quantization` is CTranslate2's (float32, int8, bfloat16, float16), the model's own
    unless given. `force` replaces the model that is in the folder.
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
    """The same, wherever it goes and however far an engine's answers are from ours."""
    if to not in ("hf", *ENGINES):
        raise InputError(f"to={to!r} is not one of hf, {', '.join(ENGINES)}")
    if quantization is not None and to != "ctranslate2":
        raise InputError(f"quantization={quantization!r} is for ctranslate2 only: leave it out")
    config = model.config
    if not has_blocks(model):
        raise CheckpointError(f"{config.family} has no layout that others read: it runs here only")
    check_vocabulary(tokenizer, getattr(config, "vocab_size", 0))
    if to == "hf":
        try:
            config_out(config)
        except CheckpointError as error:
            others = "to=ctranslate2 or to=onnx" if config.task in ("language_model", "translate") else "to=onnx"
            raise CheckpointError(f"{error}: train with what it has, or write another layout, {others}") from None
        export_hf(model, folder, tokenizer)
        return None
    return export_engine(model, folder, tokenizer, to=to, quantization=quantization)


@checked
def import_model(
    source: Path | str,
    folder: Path | str,
    *,
    tokenizer: bool = True,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
) -> None:
    """Makes a model folder of our own from a published one; its tokenizer comes along, if it has one and may.

    `force` replaces the model that is in the folder.
    """
    check_folder(Path(folder), MODEL, force=force, shared=True)
    model, own = load(source, dtype=dtype), tokenizer_of(source) if tokenizer else None
    with replacing_folder(Path(folder), MODEL) as fresh:
        save_folder(model, fresh, own)


def _found(path: Path | str) -> Path:
    try:
        return find(path)
    except CheckpointError as error:
        if str(path) in sizes():
            raise CheckpointError(f"{error} (a size of that name can be built with new weights: build)") from None
        raise


def _reader(path: Path) -> Callable[..., Model]:
    if path.is_dir():
        check_ended(path)
        if not (path / "config.json").exists():
            usual = "no config.json: a model folder has one beside its .safetensors files"
            holds = next((what for file, what in OTHERS.items() if (path / file).exists()), usual)
            raise CheckpointError(f"{path} holds {holds.format(path)}")
        return load_folder if "family" in read_json(path / "config.json") else load_hf
    if path.suffix == ".gguf":
        return load_gguf
    if path.suffix == ".bin":
        return load_llama2c
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} holds weights alone: give its folder, {path.parent}")
    raise CheckpointError(f"{path}: {READABLE}")


@checked
def tokenizer_of(path: Path | str) -> Tokenizer | None:
    """The tokenizer that came with a model, None where none did."""
    path = _found(path)
    if path.is_dir():
        return find_tokenizer(path)
    if path.suffix == ".gguf":
        return gguf_tokenizer(GGUFFile(path).metadata, str(path))
    beside = path.parent / LLAMA2C_TOKENIZER
    if path.suffix != ".bin" or not beside.exists():
        return None
    vocab_size = open_llama2c(path).config["vocab_size"]
    return llama2c_tokenizer(read_bytes(beside, 64 * MEGABYTE), vocab_size, str(beside))
