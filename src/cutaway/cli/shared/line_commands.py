"""What the commands that answer line by line share: where lines come from and go to, and a bar for whoever watches."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from cutaway.errors import InputError

Input = Annotated[Path | None, typer.Option("--input", help="A file to answer, line by line.")]
Output = Annotated[Path | None, typer.Option("--output", help="Where the lines go.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an output that was interrupted.")]
Cut = Annotated[
    int | None, typer.Option("--cut", min=1, help="Texts end after so many tokens; else long ones are refused.")
]
PARTS = ("config.json", "*.safetensors", "tokenizer*.json", "vocab.*", "merges.txt", "recipe.toml")
T = TypeVar("T")
Answer = Callable[[list[str], Callable[[int, int], None]], list[str]]


def check_given(texts: list[str] | None, input: Path | None, output: Path | None, resume: bool) -> list[str]:
    """The texts among the arguments; none where lines are to be read."""
    texts = [] if texts == ["-"] else texts or []
    if texts and (input or output):
        raise InputError("either texts, or --input and --output: lines come from a file or a pipe")
    if resume and not output:
        raise InputError("--resume goes on with a file: give --output")
    return texts


def hint_at_files(texts: list[str]) -> None:
    """A file's name is taken for words, which is hardly ever meant."""
    for text in texts:
        if os.path.isfile(text):
            print(f"hint: {text} is a file, and its name is taken for a text: --input {text} reads it", file=sys.stderr)


def answer_lines(
    answer: Answer,
    input: Path | None,
    output: Path | None,
    resume: bool,
    settings: Mapping[str, Any],
    *,
    unit: str = "lines",
) -> None:
    """From a file or stdin, to a file or stdout. `unit` is what `answer` counts when it tells how far it is."""
    from cutaway.decoding.line_files import stream, to_file

    with _telling(output), ExitStack() as stack:
        name = "stdin" if input is None else str(input)
        try:
            source: Any = sys.stdin.buffer if input is None else stack.enter_context(input.open("rb"))
        except OSError as error:
            raise InputError(f"{input} cannot be read: {error.strerror}") from None
        if output is not None and input is not None and output.exists() and output.samefile(input):
            raise InputError(f"{input} is read and written: give another --output")
        bar = stack.enter_context(Bar(source, unit, shown=output is not None or not sys.stdout.isatty()))
        if output is not None and output.is_dir():
            raise InputError(f"{output} is a folder: give --output a file")
        if output is None or (output.exists() and not output.is_file()):
            try:
                sink: Any = sys.stdout.buffer if output is None else stack.enter_context(output.open("wb"))
            except OSError as error:
                raise InputError(f"{output} cannot be written: {error.strerror}") from None
            stream(source, sink, bar.counting(answer), name=name, report=bar.report)
        else:
            counted = bar.counting(answer)
            to_file(source, output, counted, settings=settings, resume=resume, name=name, report=bar.report)


@contextmanager
def _telling(output: Path | None) -> Iterator[None]:
    """Ctrl-C ends a run; whoever pressed it is told what there is, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if output is not None and output.is_file():
            with output.open("rb") as file:
                count = sum(data.count(b"\n") for data in iter(lambda: file.read(1 << 20), b""))
            print(f"{count:,} lines written to {output}; --resume goes on", file=sys.stderr)
        raise


def of_model(path: Path) -> dict[str, str]:
    """Which model is asked, and a fingerprint of its files: one that was trained anew answers otherwise."""
    files = [file for part in PARTS for file in path.glob(part)] if path.is_dir() else [path]
    known = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
    return {"model": str(path.resolve()), "files": hashlib.sha256(repr(known).encode()).hexdigest()[:16]}


def of_words(lines: list[str], answer: Callable[[list[str]], Iterable[T]]) -> list[T | None]:
    """The answers to lines; None to a line without words, which has to leave one as well."""
    found = iter(answer([line for line in lines if line.strip()]))
    return [next(found) if line.strip() else None for line in lines]


def n_lines(source: BufferedIOBase) -> int | None:
    """How many lines a file has from here on; None for a pipe, whose end nobody knows."""
    from cutaway.decoding.line_files import is_file

    if not is_file(source):
        return None
    start, count, last = source.tell(), 0, b"\n"
    while data := source.read(1 << 20):
        count, last = count + data.count(b"\n"), data[-1:]
    source.seek(start)
    return count + (last != b"\n")


class Bar:
    """Lines done, of how many where that is known, the speed and the time left: on stderr, if that is a terminal."""

    def __init__(self, source: BufferedIOBase, unit: str, *, shown: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from cutaway.cli.shared.console import Console

        console = Console(stderr=True)
        self.shown = shown and console.is_terminal
        total = n_lines(source) if self.shown else None
        known = total is not None
        columns = (
            *([BarColumn()] if known else []),
            TextColumn("{task.completed:,.0f}" + (f" of {total:,} lines" if known else " lines")),
            TextColumn("{task.fields[speed]}"),
            *([TimeRemainingColumn(), TextColumn("left")] if known else [TimeElapsedColumn()]),
        )
        self.progress = Progress(*columns, transient=True, console=console, disable=not self.shown)
        self.task = self.progress.add_task("", total=total, speed="")
        self.unit, self.units, self.begun = unit, 0, 0.0

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def report(self, done: int, total: int) -> None:
        """The first call says what an earlier run had done: it tells nothing of the speed."""
        if not self.shown:
            return
        if not self.begun:
            self.begun = time.monotonic()
            self.progress.reset(self.task, completed=done)
            return
        speed = self.units / max(1e-9, time.monotonic() - self.begun)
        self.progress.update(self.task, completed=done, speed=f"{speed:,.0f} {self.unit}/s" if self.units else "")

    def counting(self, answer: Answer) -> Answer:
        """The same, and what it is done with is counted."""

        def counted(texts: list[str], report: Callable[[int, int], None]) -> list[str]:
            before = self.units

            def told(done: int, total: int) -> None:
                self.units = before + done
                report(done, total)

            return answer(texts, told)

        return counted
