"""What the commands that let a model speak share: texts, and a model that is ready."""

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

    fp32 = "fp32"
    bf16 = "bf16"
    int8 = "int8"


Texts = Annotated[
    list[str] | None, typer.Argument(metavar="[TEXT…]", help="Texts; without any, or with -, stdin's lines.")
]
Where = Annotated[Path, typer.Option("--model", callback=locate_model, help="A model's folder, file or name.")]
In = Annotated[Precision, typer.Option("--precision", help="fp32; bf16; or int8, the fastest on a CPU.")]


@contextmanager
def importing() -> Iterator[None]:
    """What torch makes when it is imported stays: to look through it for garbage takes a seventh of a cold start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_ready(path: Path, precision: Precision) -> "tuple[Model, Tokenizer | None]":
    """The model in the wanted precision, on the GPU where there is one (8 bits are for the CPU), and its tokenizer."""
    with importing():
        import torch

        from cutaway.checkpoints import load, tokenizer_of
        from cutaway.decoding.precision import with_precision

    device = "cuda" if torch.cuda.is_available() and precision is not Precision.int8 else "cpu"
    return with_precision(load(path, device=device), precision.value), tokenizer_of(path)


def tokenizer_for_text(tokenizer: "Tokenizer | None", path: Path) -> "Tokenizer":
    if tokenizer is None:
        raise InputError(
            f"{path} has no tokenizer: put its tokenizer.json beside the weights; a model of pictures needs none, and "
            f"answers `cutaway classify`"
        )
    return tokenizer


def warn_if_plain(name: str, picture: "UInt8[np.ndarray, 'channel height width']") -> None:
    """A model of pictures has an answer to an empty one, too, and may be sure of it."""
    if picture.min() == picture.max():
        print(f"warning: {name} is all of one colour: what is said of it means nothing", file=sys.stderr)


def as_trained(path: Path) -> bool:
    """`cutaway train` leaves its recipe beside the model, and puts special tokens around texts by its own rule."""
    return (path / "recipe.toml").is_file()
