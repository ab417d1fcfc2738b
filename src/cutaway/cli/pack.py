"""`cutaway pack`: a model folder of our own, in a quarter of the bytes."""

from enum import StrEnum
from typing import Annotated

import typer

from cutaway.cli.shared.copy_model import Force, NoTokenizer, Out, Which, copy_model
from cutaway.cli.shared.options import Dtype, Json

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
    """Write a model folder that is a quarter as large, or half, and measure what the rounding costs."""
    from functools import partial

    from cutaway.checkpoints.convert import write_packed

    size = None if shard_size is None else int(shard_size * MEGABYTE)
    write = partial(write_packed, model, store=store.value, shard_size=size)
    copy_model(model, out, write, dtype=Dtype.float32, no_tokenizer=no_tokenizer, force=force, as_json=as_json)
