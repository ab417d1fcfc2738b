"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


class Dtype(StrEnum):
    """How many bits a number has; torch's names."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Device(StrEnum):
    """Where the model runs."""

    auto = "auto"  # the GPU where there is one
    cpu = "cpu"
    cuda = "cuda"


def located(model: Path | None) -> Path | None:
    """The callback of every option that names a model: what is no path may be a model's name (`cutaway models`)."""
    from cutaway.bundled import find

    return None if model is None else find(model)


On = Annotated[Device, typer.Option("--device", help="Where the model runs.")]
