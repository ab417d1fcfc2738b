"""Options that several commands share."""

import os
import sys
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


def locate_model(model: Path | None) -> Path | None:
    """The callback of every option that names a model: what is no path may be a model's name (`cutaway models`)."""
    from cutaway.bundled import find, names

    if model is None:
        return None
    found, known = find(model), names()
    if str(model) in known and os.path.exists(model):
        other = f"{model}, a folder here, is no model" if found != model else f"the bundled one is {known[str(model)]}"
        print(f"note: this is the model in {found if found != model else f'./{model}'}; {other}", file=sys.stderr)
    return found


On = Annotated[Device, typer.Option("--device", help="Where the model runs.")]
