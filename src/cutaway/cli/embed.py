"""`cutaway embed`: texts as vectors, so that texts of like meaning lie near each other."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.asking import In, Precision, Texts, Where, as_trained, reading, ready, table, texts_of
from cutaway.cli.options import Json

if TYPE_CHECKING:
    import numpy as np


class Pool(StrEnum):
    """What of a text its vector is."""

    mean = "mean"
    first = "first"


How = Annotated[Pool, typer.Option("--pool", help="The mean of all tokens' states, or the first token's.")]
Cut = Annotated[
    int | None, typer.Option("--cut", min=1, help="Texts end after so many tokens; else long ones are refused.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Write the vectors as a numpy array, text × d_model.")]


def embed(
    model: Where,
    texts: Texts = None,
    pool: How = Pool.mean,
    cut: Cut = None,
    out: Out = None,
    precision: In = Precision.fp32,
    as_json: Json = False,
) -> None:
    """One vector of length 1 for each text. With --json one line for each."""
    import numpy as np
    from rich.console import Console

    from cutaway.decoding.embed import embed as answer
    from cutaway.files import replacing

    asked = texts_of(texts)
    loaded, tokenizer = ready(model, precision)
    tokenizer = reading(tokenizer, model)
    vectors = answer(loaded, tokenizer, asked, pool=pool.value, cut=cut, as_trained=as_trained(model))
    if out is not None:
        with replacing(out) as temporary, temporary.open("wb") as file:
            np.save(file, vectors)
    if as_json:
        for text, vector in zip(asked, vectors.tolist(), strict=True):
            print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False, allow_nan=False))
    else:
        Console(highlight=False).print(_table(asked, vectors))


def _table(texts: list[str], vectors: "np.ndarray") -> Any:
    """Few numbers of each vector, and how like the first each is: the cosine of the angle between them."""
    from rich.text import Text

    shown = table("like the first", f"the first 4 of {vectors.shape[1]} numbers", "text")
    for text, vector in zip(texts, vectors, strict=True):
        few = " ".join(f"{x:+.3f}" for x in vector[:4])
        shown.add_row(f"{float(vector @ vectors[0]):.3f}", f"{few} …", Text(text))
    return shown
