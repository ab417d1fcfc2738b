"""Options that several commands share, and options made from the dataclasses of the Python calls."""

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import Field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from cutaway.arguments import options_in

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Dtype(StrEnum):
    """A dtype of torch."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class Split(StrEnum):
    """What separates the documents of a text."""

    file = "file"
    line = "line"
    form_feed = "form_feed"
    blank_line = "blank_line"


class Device(StrEnum):
    """Where the model runs."""

    auto = "auto"  # the GPU where there is one
    cpu = "cpu"
    cuda = "cuda"


def locate_model(model: Path | None) -> Path | None:
    """The callback of options that name a model, by path or by name (`cutaway models`)."""
    from cutaway.bundled import find, names

    if model is None:
        return None
    found, known = find(model), names()
    if str(model) in known and os.path.exists(model):
        other = f"{model}, a folder here, is no model" if found != model else f"the bundled one is {known[str(model)]}"
        print(f"note: this is the model in {found if found != model else f'./{model}'}; {other}", file=sys.stderr)
    return found


On = Annotated[Device, typer.Option("--device", help="Where the model runs.")]


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with an option for each field of its parameters whose type is an `Options` dataclass.

    A command `f(text: str, options: GenerationOptions)` gets --max-tokens, --temperature …, and is called with the
    text and a `GenerationOptions`. How a field looks on the command line is up to `cutaway.arguments.option`; with
    type=None it has no option there.
    """
    signature = inspect.signature(command)
    kinds = options_in(signature)
    shown = {name: [one for one in fields(kind) if one.metadata.get("type", one.type)] for name, kind in kinds.items()}

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, kind in kinds.items():
            given = {one.name: values.pop(one.name) for one in shown[name]}
            values[name] = kind(**{key: value for key, value in given.items() if value is not None})
        command(**values)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += [_parameter(one) for one in shown[name]] if name in kinds else [parameter]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def _parameter(field: "Field[Any]") -> inspect.Parameter:
    """A field as a parameter that typer understands."""
    kind, help = field.metadata.get("type", field.type), field.metadata["help"]
    if repeated := get_origin(kind) is list:
        help += " May be repeated."
    optional = repeated or field.default is None
    flags = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if optional else field.default,
        annotation=Annotated[
            kind | None if optional else kind,
            typer.Option(
                *flags,
                help=help,
                metavar=field.metadata.get("metavar"),
                show_default=field.metadata.get("show_default", True),
            ),
        ],
    )


def in_options(message: str, options: Collection[str]) -> str:
    """Replaces Python's top_p=1.5 by --top-p 1.5 in a message; other names, such as max_len, are kept."""

    def named(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        if option not in options or not (found[2] or "_" in found[1]):
            return found[0]
        return f"{option} " if found[2] else option

    return re.sub(r"(?<![\w'\"./\-])([a-z][a-z_]*[a-z])\b(=?)", named, message)
