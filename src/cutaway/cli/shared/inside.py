"""What `inspect`, `lens`, `patch` and `circuit` share: a model to look into, words as tokens, pictures and data out."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cutaway.cli.shared.options import locate_model
from cutaway.errors import InputError
from cutaway.folders import check_file
from cutaway.inside.reports.options import AskOptions
from cutaway.pictures.terminal_tables import draw_picture as draw_picture
from cutaway.pictures.terminal_text import human, json_text

if TYPE_CHECKING:
    import rich.progress

    from cutaway.inside.progress import Progress
    from cutaway.inside.reports.report import Report
    from cutaway.model.model import Model
    from cutaway.pictures import Picture
    from cutaway.pictures.console import Console
    from cutaway.tokens import Tokenizer

O = TypeVar("O", bound=AskOptions)  # noqa: E741
Which = Annotated[Path, typer.Argument(metavar="MODEL", callback=locate_model, help="A model's folder, file or name.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Write a page (.html), a picture (.svg), letters (.txt) or data (.json).")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file that is there, whatever it is.")]
To = Annotated[str | None, typer.Option("--to", help="The language that is wanted, where a translator knows several.")]
Layers = Annotated[str | None, typer.Option("--layers", help="Only these blocks: 3, 2-5 or 0,4,7.")]


def open_model(path: Path, *, blocks: bool = False) -> "tuple[Model, Tokenizer | None]":
    """In fp32, whatever the weights are kept in: parts add up there, and gradients are worth something.

    With `blocks`, a model that has none is refused.
    """
    from cutaway.cli.shared.models import Precision, load_ready
    from cutaway.inside.residual.decompose import check_blocks

    model, tokenizer, _ = load_ready(path, Precision.fp32)
    if blocks:
        check_blocks(model)
    return model, tokenizer


def numbers_in_option(given: str | None, option: str = "--layers") -> list[int] | None:
    """3, 2-5 or 0,4,7."""
    if given is None:
        return None
    found: list[int] = []
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{option} {given!r} is no list of numbers: write 3, 2-5 or 0,4,7")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise InputError(f"{option} {given!r} names none: the first number is the smaller one")
    return found


def options_of_folder(options: O, path: Path, model: "Model") -> O:
    """The options, with what the model's folder says: how it was trained, or how its images are normalised."""
    from cutaway.cli.shared.models import as_trained
    from cutaway.inside.model_kinds import kind_of

    if not kind_of(model).reads_images:
        return replace(options, as_trained=as_trained(path))
    from cutaway.evaluation.examples import picture_numbers

    return replace(options, **picture_numbers(path))  # type: ignore[arg-type]  # mean and std


def check_output(out: Path | None, *endings: str, force: bool) -> None:
    """Refuses a file that could not be written, or that somebody else wrote, before the work is done."""
    if out is None:
        return
    known = endings or (".html", ".svg", ".txt", ".json")
    if out.suffix.lower() not in known:
        raise InputError(f"--out {out}: its name has to end in {', '.join(known)}")
    if out.is_dir():
        raise InputError(f"--out {out} is a folder: give it a file")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}")
    check_file(out, force=force)


def write_output(out: Path, picture: "Picture | None", data: Mapping[str, Any], page: str | None = None) -> None:
    """A page, a picture or the data, by the file's ending, whole or not at all."""
    from cutaway.files import replacing

    ending = out.suffix.lower()
    text = {".html": page, ".json": as_text(data)}.get(ending)
    if text is not None:
        with replacing(out) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    else:
        assert picture is not None, "only .json has none"
        picture.save(out)
    print(f"{out}: {human(out.stat().st_size, 'B')}", file=sys.stderr)


def print_report(report: "Report", out: Path | None, *, as_json: bool) -> None:
    """Prints a report, as text or as JSON, or writes it to a file; JSON is printed also beside a file."""
    if as_json:
        print(report.json(), end="")
    if out is not None:
        report.save(out)
        print(f"{out}: {human(out.stat().st_size, 'B')}", file=sys.stderr)
    elif not as_json:
        report.show()


def warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def as_text(data: Mapping[str, Any]) -> str:
    return json_text(data) + "\n"


@contextmanager
def waiting(what: str) -> "Iterator[Progress]":
    """A bar for whoever waits at a terminal, and the `report` that moves it; a pipe sees nothing."""
    with _bar(f"{what} …") as bar:
        task = bar.add_task("", total=None)  # to and fro, until it is told something
        yield lambda done, total: bar.update(task, completed=done / total, total=1.0)


@contextmanager
def learning(*, anew: bool = False) -> "Iterator[Callable[[float, str], None]]":
    """The same with the name of what is being learnt; `anew`: each has a bar of its own."""
    with _bar("{task.description:22s}") as bar:
        task, last = bar.add_task("", total=1.0), ""

        def report(done: float, what: str) -> None:
            nonlocal last
            if anew and what != last:
                bar.reset(task)
                last = what
            bar.update(task, completed=done, description=what)

        yield report


def _bar(text: str) -> "rich.progress.Progress":
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cutaway.pictures.console import Console

    console = Console(stderr=True)
    columns = (TextColumn(text), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, transient=True, console=console, disable=not console.is_terminal)


def screen() -> "Console":
    """Stdout, at most as wide as our reports."""
    from cutaway.pictures.console import report_console

    return report_console()
