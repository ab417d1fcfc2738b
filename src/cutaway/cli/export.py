"""`cutaway export`: a model as other tools load it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.copying import Force, Kind, NoTokenizer, copy_model
from cutaway.cli.options import Dtype, Json


class Layout(StrEnum):
    hf = "hf"


Which = Annotated[Path, typer.Argument(metavar="MODEL", help="A model's folder or file, in any layout that is read.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")]
To = Annotated[Layout, typer.Option("--to", help="The layout: hf is Hugging Face's, which `transformers` loads.")]


def export(
    model: Which,
    out: Out,
    to: To = Layout.hf,
    dtype: Kind = Dtype.float32,
    no_tokenizer: NoTokenizer = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model, and its tokenizer, as other tools load it."""
    from cutaway.checkpoints import export as write

    copy_model(model, out, write, dtype=dtype, no_tokenizer=no_tokenizer, force=force, as_json=as_json)
