"""`cutaway pack`: a model folder of our own, in a quarter of the bytes."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.copy_model import Force, NoTokenizer, Out, Which, copy_model
from cutaway.cli.shared.options import Dtype, Json

if TYPE_CHECKING:
    from cutaway.checkpoints.agreement import Agreement
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer

MEGABYTE = 10**6


class Store(StrEnum):
    int8 = "int8"
    bf16 = "bf16"


In = Annotated[Store, typer.Option("--store", help="Matrices in 8 bits with a scale for each row, or in bfloat16.")]
ShardSize = Annotated[
    float | None, typer.Option("--shard-size", metavar="MB", help="Split the weights into files of so many megabytes.")
]


def pack(
    model: Which,
    out: Out,
    store: In = Store.int8,
    shard_size: ShardSize = None,
    no_tokenizer: NoTokenizer = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model folder that is a quarter as large, or half, and say what the rounding costs."""

    def write(loaded: "Model", folder: Path, tokenizer: "Tokenizer | None") -> "Agreement":
        from shutil import copyfile

        from cutaway.checkpoints import load
        from cutaway.checkpoints.model_folder import save_folder
        from cutaway.checkpoints.packed import carried, measure_packed

        save_folder(loaded, folder, tokenizer, store=store.value, shard_size=size)
        for file in carried(model):
            copyfile(file, folder / file.name)
        return measure_packed(loaded, load(folder), store.value)

    size = None if shard_size is None else int(shard_size * MEGABYTE)
    dtype = Dtype.float32
    copy_model(model, out, write, dtype=dtype, no_tokenizer=no_tokenizer, force=force, as_json=as_json)
