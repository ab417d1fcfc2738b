"""`cutaway classify`: what a fine-tuned model says of texts, pairs of texts, or pictures."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.line_commands import (
    Cut,
    Input,
    Output,
    Resume,
    answer_lines,
    check_given,
    hint_at_files,
    of_model,
    of_words,
)
from cutaway.cli.shared.models import (
    In,
    Precision,
    Texts,
    Where,
    as_trained,
    chosen_precision,
    load_ready,
    tokenizer_for_text,
    warn_if_plain,
)
from cutaway.cli.shared.options import Json
from cutaway.cli.shared.tables import chance, grid, json_text, stdout
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.cli.shared.console import Console
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer

AT_ONCE = 256  # pictures take memory
LABEL = 32  # cells of a label; a longer one goes on below


def classify(
    model: Where,
    texts: Texts = None,
    cut: Cut = None,
    input: Input = None,
    output: Output = None,
    resume: Resume = False,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Classes, numbers or tags of texts; the two of a pair have a tab between them; pictures are files.

    Lines give lines: the class and its probability, the number, or a tag for each word. With --json texts do too.
    A picture that cannot be read is named and left out, and the command then ends with 2.
    """
    asked = check_given(texts, input, output, resume)
    precision = chosen_precision(precision, model)
    loaded, found = load_ready(model, precision)
    pictures = loaded.config.family == "vit"
    if cut and pictures:
        raise InputError("--cut ends texts, and this model reads pictures: leave it out")
    if not pictures:
        hint_at_files(asked)
    bad: list[str] = []
    answers = _of_pictures(loaded, model, bad) if pictures else _of_texts(loaded, found, model, cut)

    def lines(some: list[str], report: Callable[[int, int], None]) -> list[str]:
        said = of_words(some, lambda texts: answers(texts, report))
        return [_line(text, one, as_json) for text, one in zip(some, said, strict=True)]

    if not asked:
        answers([])  # a model without classes is refused before a file is begun
        settings = {"command": "classify", **of_model(model), "cut": cut, "precision": precision, "json": as_json}
        answer_lines(lines, input, output, resume, settings)
    elif as_json:
        for text, said in zip(asked, answers(asked), strict=True):
            print(_line(text, said, True))
    else:
        said = [(text, one) for text, one in zip(asked, answers(asked), strict=True) if not isinstance(one, InputError)]
        if said:
            _show([text for text, _ in said], [one for _, one in said])
    if bad:
        raise InputError(f"{len(bad)} picture{'s' if len(bad) > 1 else ''} could not be read")


def _of_texts(loaded: "Model", found: "Tokenizer | None", path: Path, cut: int | None) -> Callable[..., list[Any]]:
    from cutaway.decoding.classify import classify as answer

    tokenizer, trained = tokenizer_for_text(found, path), as_trained(path)

    def answers(texts: list[str], *report: Any) -> list[Any]:
        pairs = [tuple(text.split("\t", 1)) if "\t" in text else text for text in texts]
        more = {"report": report[0]} if report else {}
        return answer(loaded, tokenizer, pairs, cut=cut, as_trained=trained, **more)

    return answers


def _of_pictures(loaded: "Model", path: Path, bad: list[str]) -> Callable[..., list[Any]]:
    """Answers to files, and an error in the place of the answer to a `bad` one."""
    from cutaway.decoding.classify import arrays_of
    from cutaway.decoding.classify import classify as answer
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

    def answers(files: list[str], *report: Any) -> list[Any]:
        said: list[Any] = []
        for start in range(0, max(1, len(files)), AT_ONCE):
            pictures = [read(file) for file in files[start : start + AT_ONCE]]
            good = [picture for picture in pictures if not isinstance(picture, InputError)]
            found = iter(answer(loaded, good, **numbers))
            said += [picture if isinstance(picture, InputError) else next(found) for picture in pictures]
        return said

    return answers


def _line(text: str, said: Any, as_json: bool) -> str:
    if as_json:
        plain = {} if said is None else {"error": str(said)} if isinstance(said, InputError) else _plain(said)
        return json_text({"input": text, **plain})
    if said is None or isinstance(said, InputError):
        return ""
    if isinstance(said, float):
        return f"{said:.6g}"
    return " ".join(tag.tag for tag in said) if isinstance(said, list) else f"{said.label}\t{said.probability:.4f}"


def _plain(said: Any) -> dict[str, Any]:
    if isinstance(said, float):
        return {"value": said}
    return {"tags": [asdict(tag) for tag in said]} if isinstance(said, list) else asdict(said)


def _show(asked: list[str], found: list[Any]) -> None:
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
    cells = [_cells(said, console) for said in found]
    room = console.width
    for column in zip(*cells, strict=True):  # what is said stays whole
        wide = max(console.measure(cell).maximum for cell in column)
        width = min(wide, LABEL) if console.is_terminal else wide
        shown.add_column(width=width, overflow="fold", justify="right" if isinstance(found[0], float) else "left")
        room -= width + 2
    for text, said in zip(asked, cells, strict=True):
        echo = Text(text.replace("\t", " · "))
        echo.truncate(max(1, room), overflow="ellipsis")  # there only to be recognised
        shown.add_row(*said, echo)
    console.print(shown)


def _cells(said: Any, console: "Console") -> list[Any]:
    from rich.text import Text

    if isinstance(said, float):
        return [Text(f"{said:.4f}", "bold")]
    return [Text(said.label, "bold"), *chance(said.probability, console)]
