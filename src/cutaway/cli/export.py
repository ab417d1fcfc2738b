"""`cutaway export`: a model as other tools load it."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from cutaway.cli.shared.copy_model import Force, Kind, NoTokenizer, Out, Which, copy_model
from cutaway.cli.shared.options import Dtype, Json


class Layout(StrEnum):
    hf = "hf"
    ctranslate2 = "ctranslate2"
    onnx = "onnx"


class Quantization(StrEnum):
    float32 = "float32"
    int8 = "int8"
    bfloat16 = "bfloat16"
    float16 = "float16"


To = Annotated[
    Layout,
    typer.Option(
        "--to", help="hf is Hugging Face's layout, for `transformers` and vLLM; the others are tried on random inputs."
    ),
]
Rounded = Annotated[
    Quantization | None, typer.Option("--quantization", help="Of CTranslate2's matrices; as --dtype unless given.")
]


def export(
    model: Which,
    out: Out,
    to: To = Layout.hf,
    dtype: Kind = Dtype.float32,
    quantization: Rounded = None,
    no_tokenizer: NoTokenizer = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model, and its tokenizer, as other tools load it."""
    from cutaway.checkpoints import export_to

    write: Any = partial(export_to, to=to.value, quantization=None if quantization is None else quantization.value)
    copy_model(model, out, write, dtype=dtype, no_tokenizer=no_tokenizer, force=force, as_json=as_json)
