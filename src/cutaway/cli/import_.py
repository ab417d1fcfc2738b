"""`cutaway import`: a published model becomes a folder of our own."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.shared.copy_model import Force, Kind, NoTokenizer, copy_model
from cutaway.cli.shared.options import Dtype, Json

From = Annotated[Path, typer.Argument(metavar="FROM", help="A Hugging Face folder, a .gguf file or a llama2.c .bin.")]
To = Annotated[Path, typer.Argument(metavar="TO", help="The folder to write.")]


def import_(
    source: From,
    target: To,
    dtype: Kind = Dtype.float32,
    no_tokenizer: NoTokenizer = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a model folder of our own from a published model. Nothing in it is run, and no pickle is read."""
    from cutaway.checkpoints.model_folder import save_folder

    copy_model(source, target, save_folder, dtype=dtype, no_tokenizer=no_tokenizer, force=force, as_json=as_json)
