"""Options that several commands share."""

from enum import StrEnum
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


On = Annotated[Device, typer.Option("--device", help="Where the model runs.")]
