"""`cutaway fill`: the words that a masked language model would put into the blanks of a text."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cutaway.cli.asking import In, Precision, Texts, Where, as_trained, reading, ready, table, texts_of
from cutaway.cli.options import Json

K = Annotated[int, typer.Option("--k", min=1, help="Words for each blank.")]


def fill(model: Where, texts: Texts = None, k: K = 5, precision: In = Precision.fp32, as_json: Json = False) -> None:
    """The likeliest words for each blank: [MASK], <mask> or ___. With --json one line for each text."""
    from rich.console import Console
    from rich.text import Text

    from cutaway.decoding.fill import fill as answer

    asked = texts_of(texts)
    loaded, tokenizer = ready(model, precision)
    found = answer(loaded, reading(tokenizer, model), asked, k=k, as_trained=as_trained(model))
    console = Console(highlight=False)
    for filled in found:
        if as_json:
            print(json.dumps(asdict(filled), ensure_ascii=False, allow_nan=False))
            continue
        console.print(Text(filled.sentence, "bold"), soft_wrap=True)
        shown = table(*(f"blank {n + 1}" if len(filled.blanks) > 1 else "" for n in range(len(filled.blanks))))
        for guesses in zip(*filled.blanks, strict=True):
            shown.add_row(*(Text.assemble(f"{guess.probability:6.1%}  ", guess.word) for guess in guesses))
        console.print(shown)
