"""`cutaway fill`: the words that a masked language model puts into the blanks of a text."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.arguments import Progress
from cutaway.cli.shared.line_commands import (
    LineOptions,
    answer_lines,
    fingerprint,
    given_texts,
    nonblank_answers,
)
from cutaway.cli.shared.models import (
    In,
    Precision,
    Texts,
    Where,
    as_trained,
    load_ready,
    tokenizer_for_text,
)
from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_tables import guesses, stdout
from cutaway.pictures.terminal_text import json_text, shown

if TYPE_CHECKING:
    from cutaway.decoding.fill import Filled

K = Annotated[int, typer.Option("--k", min=1, help="Words for each blank.")]


def fill(
    model: Where,
    texts: Texts = None,
    k: K = 5,
    *,
    lines: LineOptions,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Fill the blanks of texts: [MASK], <mask> or ___. Each line of the input gives one line."""
    texts = given_texts(texts, lines)
    loaded, found, precision = load_ready(model, precision)

    from cutaway.decoding.fill import fill as fill_blanks

    tokenizer, trained = tokenizer_for_text(found, model), as_trained(model)

    def answers(some: list[str]) -> "list[Filled]":
        return fill_blanks(loaded, tokenizer, some, k=k, as_trained=trained)

    def answer(some: list[str], progress: Progress) -> list[str]:
        return [_line(filled, as_json) for filled in nonblank_answers(some, answers)]

    if not texts:
        answers([])  # a model that fills nothing is refused before a file is begun
        settings = {"command": "fill", **fingerprint(model), "k": k, "precision": precision, "json": as_json}
        answer_lines(answer, lines, settings)
        return
    for filled in answers(texts):
        print(_line(filled, True)) if as_json else _show(filled)


def _line(filled: "Filled | None", as_json: bool) -> str:
    if as_json:
        return json_text({"text": "", "blanks": [], "sentence": ""} if filled is None else asdict(filled))
    return "" if filled is None else filled.sentence


def _show(filled: "Filled") -> None:
    from rich.columns import Columns
    from rich.text import Text

    console = stdout()
    console.print(Text(shown(filled.sentence), "bold"))
    tables = [
        guesses([(word.word, word.probability) for word in words], console, f"blank {n}" * (len(filled.blanks) > 1))
        for n, words in enumerate(filled.blanks, 1)
    ]
    console.print(Columns(tables, padding=(0, 4)))  # as many side by side as there is room for
