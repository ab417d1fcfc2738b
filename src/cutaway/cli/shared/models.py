"""What the commands that run a model share: options, the precision, a model that is loaded."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.options import locate_model
from cutaway.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer


class Precision(StrEnum):
    """What the model computes in."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    int8 = "int8"


Texts = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT…]", help="Texts; without any, or with -, the lines of stdin.")
]
Where = Annotated[Path, typer.Option("--model", callback=locate_model, help="A model's folder, file or name.")]
In = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="auto is int8 on a CPU if the weights are stored in 8 bits, else fp32. int8 is several times faster; 1 to "
        "3 sentences in 100 differ from fp32's, or with other sentences in the batch.",
    ),
]


@contextmanager
def importing() -> Iterator[None]:
    """Without garbage collection: looking through torch's objects takes a seventh of a cold start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def chosen_precision(precision: Precision, path: Path) -> Precision:
    """What `auto` means for this model here."""
    if precision is not Precision.auto:
        return precision
    from cutaway.bundled.info import stored_as

    if stored_as(path) != "int8":
        return Precision.fp32
    with importing():
        import torch

        from cutaway.model.kernels.int8 import has_kernel

    return Precision.int8 if has_kernel() and not torch.cuda.is_available() else Precision.fp32


def load_ready(path: Path, precision: Precision) -> "tuple[Model, Tokenizer | None, Precision]":
    """The model on the GPU if there is one (int8 is for the CPU), its tokenizer, and the precision it computes in."""
    precision = chosen_precision(precision, path)
    with importing():
        import torch

        from cutaway.checkpoints import load, tokenizer_of

    device = "cuda" if torch.cuda.is_available() and precision is not Precision.int8 else "cpu"
    model = load(path, precision=precision.value, device=device)  # type: ignore[arg-type]
    return model, tokenizer_of(path), precision


def tokenizer_for_text(tokenizer: "Tokenizer | None", path: Path) -> "Tokenizer":
    if tokenizer is None:
        raise InputError(
            f"{path} has no tokenizer: put its tokenizer.json beside the weights; a model of pictures is for "
            "`cutaway classify`"
        )
    return tokenizer


def warn_if_plain(name: str, picture: "UInt8[np.ndarray, 'channel height width']") -> None:
    """Warns about an empty picture, for which a model has an answer, too."""
    if picture.min() == picture.max():
        print(f"warning: {name} has only one colour: the answer means nothing", file=sys.stderr)


def as_trained(path: Path) -> bool:
    """Whether `cutaway train` made the model, which puts special tokens around texts by its own rule."""
    return (path / "recipe.toml").is_file()
