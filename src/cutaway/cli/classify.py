"""`cutaway classify`: classes, tags or numbers for texts, pairs of texts, or pictures, by a fine-tuned model."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.arguments import Progress, no_progress
from cutaway.cli.shared.line_commands import (
    CUT,
    LineOptions,
    answer_lines,
    fingerprint,
    given_texts,
    hint_at_files,
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
    warn_if_plain,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.pictures.terminal_tables import chance, grid, stdout
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.model.model import Model
    from cutaway.pictures.console import Console
    from cutaway.tokens import Tokenizer

PICTURES_AT_ONCE = 256
LABEL = 32  # columns of a label; a longer one is wrapped


def classify(
    model: Where,
    texts: Texts = None,
    cut: Annotated[int | None, typer.Option("--cut", min=1, help=CUT)] = None,
    *,
    lines: LineOptions,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Classify texts or pictures, tag words, or predict numbers.

    A tab separates the two texts of a pair. Each line of the input gives one line: the class and its probability, the
    number, or a tag for each word. Pictures are file names; one that cannot be read is reported and skipped, and the
    exit code is then 2.
    """
    texts = given_texts(texts, lines)
    loaded, found, precision = load_ready(model, precision)
    pictures = loaded.config.family == "vit"
    if cut and pictures:
        raise InputError("--cut is for texts, and this model reads pictures: leave it out")
    if not pictures:
        hint_at_files(texts)
    bad: list[str] = []
    answers = _of_pictures(loaded, model, bad) if pictures else _of_texts(loaded, found, model, cut)

    def answer(some: list[str], progress: Progress) -> list[str]:
        found = nonblank_answers(some, lambda texts: answers(texts, progress))
        return [_line(text, one, as_json) for text, one in zip(some, found, strict=True)]

    if not texts:
        answers([])  # a model without classes is refused before a file is begun
        settings = {"command": "classify", **fingerprint(model), "cut": cut, "precision": precision, "json": as_json}
        answer_lines(answer, lines, settings)
    elif as_json:
        for text, one in zip(texts, answers(texts), strict=True):
            print(_line(text, one, True))
    else:
        good = [(text, one) for text, one in zip(texts, answers(texts), strict=True) if not isinstance(one, InputError)]
        if good:
            _show([text for text, _ in good], [one for _, one in good])
    if bad:
        raise InputError(f"{len(bad)} picture{'s' if len(bad) > 1 else ''} could not be read")


def _of_texts(loaded: "Model", found: "Tokenizer | None", path: Path, cut: int | None) -> Callable[..., list[Any]]:
    from cutaway.decoding.classify import classify

    tokenizer, trained = tokenizer_for_text(found, path), as_trained(path)

    def answers(texts: list[str], progress: Progress = no_progress) -> list[Any]:
        pairs = [tuple(text.split("\t", 1)) if "\t" in text else text for text in texts]
        return classify(loaded, tokenizer, pairs, cut=cut, as_trained=trained, progress=progress)

    return answers


def _of_pictures(loaded: "Model", path: Path, bad: list[str]) -> Callable[..., list[Any]]:
    """The answers for files; for one that cannot be read the error, and its name goes into `bad`."""
    from cutaway.decoding.classify import arrays_of, classify
    from cutaway.evaluation.examples import picture_numbers

    numbers = picture_numbers(path)

    def read(file: str) -> Any:
        try:
            ((picture,), *_) = arrays_of(loaded, [file], **numbers)
        except InputError as error:
            print("error:", error, file=sys.stderr)
            bad.append(file)
            return error
        warn_if_plain(file, picture)
        return picture

    def answers(files: list[str], progress: Progress = no_progress) -> list[Any]:
        answers: list[Any] = []
        for start in range(0, max(1, len(files)), PICTURES_AT_ONCE):
            pictures = [read(file) for file in files[start : start + PICTURES_AT_ONCE]]
            good = [picture for picture in pictures if not isinstance(picture, InputError)]
            found = iter(classify(loaded, good, **numbers))
            answers += [picture if isinstance(picture, InputError) else next(found) for picture in pictures]
        return answers

    return answers


def _line(text: str, answer: Any, as_json: bool) -> str:
    if as_json:
        plain = {} if answer is None else {"error": str(answer)} if isinstance(answer, InputError) else _plain(answer)
        return json_text({"input": text, **plain})
    if answer is None or isinstance(answer, InputError):
        return ""
    if isinstance(answer, float):
        return f"{answer:.6g}"
    return (
        " ".join(tag.tag for tag in answer) if isinstance(answer, list) else f"{answer.label}\t{answer.probability:.4f}"
    )


def _plain(answer: Any) -> dict[str, Any]:
    if isinstance(answer, float):
        return {"value": answer}
    return {"tags": [asdict(tag) for tag in answer]} if isinstance(answer, list) else asdict(answer)


def _show(texts: list[str], found: list[Any]) -> None:
    from rich.text import Text

    console, shown = stdout(), grid()
    if isinstance(found[0], list):
        for number, tags in enumerate(found):
            if number:
                shown.add_row()
            for tag in tags:
                shown.add_row(Text(tag.word), Text(tag.tag, "bold"), *chance(tag.probability, console))
        console.print(shown)
        return
    cells = [_cells(answer, console) for answer in found]
    room = console.width
    for column in zip(*cells, strict=True):  # answers stay whole
        wide = max(console.measure(cell).maximum for cell in column)
        width = min(wide, LABEL) if console.is_terminal else wide
        shown.add_column(width=width, overflow="fold", justify="right" if isinstance(found[0], float) else "left")
        room -= width + 2
    for text, answer in zip(texts, cells, strict=True):
        echo = Text(text.replace("\t", " · "))
        echo.truncate(max(1, room), overflow="ellipsis")  # only to be recognised
        shown.add_row(*answer, echo)
    console.print(shown)


def _cells(answer: Any, console: "Console") -> list[Any]:
    from rich.text import Text

    if isinstance(answer, float):
        return [Text(f"{answer:.4f}", "bold")]
    return [Text(answer.label, "bold"), *chance(answer.probability, console)]
