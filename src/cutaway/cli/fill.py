"""`cutaway fill`: the words that a masked language model would put into the blanks of a text."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.line_commands import Input, Output, Resume, answer_lines, check_given, of_model, of_words
from cutaway.cli.shared.models import (
    In,
    Precision,
    Texts,
    Where,
    as_trained,
    chosen_precision,
    load_ready,
    tokenizer_for_text,
)
from cutaway.cli.shared.options import Json
from cutaway.cli.shared.tables import guesses, json_text, stdout
from cutaway.cli.shared.wording import shown

if TYPE_CHECKING:
    from cutaway.decoding.fill import Filled

K = Annotated[int, typer.Option("--k", min=1, help="Words for each blank.")]


def fill(
    model: Where,
    texts: Texts = None,
    k: K = 5,
    input: Input = None,
    output: Output = None,
    resume: Resume = False,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """The likeliest words for each blank: [MASK], <mask> or ___. Lines give lines, with --json texts do too."""
    asked = check_given(texts, input, output, resume)
    precision = chosen_precision(precision, model)
    loaded, found = load_ready(model, precision)

    from cutaway.decoding.fill import fill as answer

    tokenizer, trained = tokenizer_for_text(found, model), as_trained(model)

    def answers(some: list[str]) -> "list[Filled]":
        return answer(loaded, tokenizer, some, k=k, as_trained=trained)

    def lines(some: list[str], report: Callable[[int, int], None]) -> list[str]:
        return [_line(filled, as_json) for filled in of_words(some, answers)]

    if not asked:
        answers([])  # a model that fills nothing is refused before a file is begun
        settings = {"command": "fill", **of_model(model), "k": k, "precision": precision, "json": as_json}
        answer_lines(lines, input, output, resume, settings)
        return
    for filled in answers(asked):
        print(_line(filled, True)) if as_json else _show(filled)


def _line(filled: "Filled | None", as_json: bool) -> str:
    if as_json:
        said = {"text": "", "blanks": [], "sentence": ""} if filled is None else asdict(filled)
        return json_text(said)
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
