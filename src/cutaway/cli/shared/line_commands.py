"""What the commands that work line by line share: input and output, resuming, a progress bar."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeVar

from cutaway.arguments import Options, Progress, option
from cutaway.errors import InputError

CUT = "Cut texts after this many tokens; by default longer texts are refused."
MODEL_FILES = ("config.json", "*.safetensors", "tokenizer*.json", "vocab.*", "merges.txt", "recipe.toml")
T = TypeVar("T")
Answer = Callable[[list[str], Progress], list[str]]


@dataclass(frozen=True, kw_only=True)
class LineOptions(Options):
    """Where lines come from, and where the answers go."""

    input: Path | None = option(None, "Read the lines of this file.")
    output: Path | None = option(None, "Write a line for each to this file.")
    resume: bool = option(False, "Continue an output that was interrupted.")


def given_texts(texts: list[str] | None, lines: LineOptions) -> list[str]:
    """The texts among the arguments; none where lines are to be read."""
    texts = [] if texts == ["-"] else texts or []
    if texts and (lines.input or lines.output):
        raise InputError("give either texts, or --input and --output: lines come from a file or a pipe")
    if lines.resume and not lines.output:
        raise InputError("--resume continues a file: give its name with --output")
    return texts


def hint_at_files(texts: list[str]) -> None:
    """Warns that the name of a file is taken for a text, which is hardly ever meant."""
    for text in texts:
        if os.path.isfile(text):
            print(
                f"hint: {text} is a file, but its name is taken as the text: --input {text} reads the file",
                file=sys.stderr,
            )


def answer_lines(answer: Answer, lines: LineOptions, settings: Mapping[str, Any], *, unit: str = "lines") -> None:
    """Answers the lines of a file or stdin, into a file or stdout. `unit` is what `answer` counts as progress."""
    from cutaway.decoding.line_files import stream, to_file

    input, output = lines.input, lines.output
    with _hint_at_resume(output), ExitStack() as stack:
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
            stream(source, sink, bar.counting(answer), name=name, progress=bar.update)
        else:
            to_file(
                source, output, bar.counting(answer),
                settings=settings, resume=lines.resume, name=name, progress=bar.update,
            )  # fmt: skip


@contextmanager
def _hint_at_resume(output: Path | None) -> Iterator[None]:
    """After Ctrl-C, says what was written, and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        if output is not None and output.is_file():
            with output.open("rb") as file:
                count = sum(data.count(b"\n") for data in iter(lambda: file.read(1 << 20), b""))
            print(f"{count:,} lines written to {output}; --resume continues", file=sys.stderr)
        raise


def fingerprint(path: Path) -> dict[str, str]:
    """A model's path and a fingerprint of its files, since a model that was trained again answers differently."""
    files = [file for part in MODEL_FILES for file in path.glob(part)] if path.is_dir() else [path]
    known = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
    return {"model": str(path.resolve()), "files": hashlib.sha256(repr(known).encode()).hexdigest()[:16]}


def nonblank_answers(lines: list[str], answer: Callable[[list[str]], Iterable[T]]) -> list[T | None]:
    """The answers to lines; None for a blank line, which has to give a line, too."""
    found = iter(answer([line for line in lines if line.strip()]))
    return [next(found) if line.strip() else None for line in lines]


def n_lines(source: BufferedIOBase) -> int | None:
    """The number of lines that a file still has; None for a pipe."""
    from cutaway.decoding.line_files import is_file

    if not is_file(source):
        return None
    start, count, last = source.tell(), 0, b"\n"
    while data := source.read(1 << 20):
        count, last = count + data.count(b"\n"), data[-1:]
    source.seek(start)
    return count + (last != b"\n")


class Bar:
    """A progress bar on stderr, if that is a terminal: lines done, the total if known, speed and time left."""

    def __init__(self, source: BufferedIOBase, unit: str, *, shown: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from cutaway.pictures.console import Console

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

    def update(self, done: int, total: int) -> None:
        """Shows how many lines are done. The first call counts those of an earlier run, which say nothing of speed."""
        if not self.shown:
            return
        if not self.begun:
            self.begun = time.monotonic()
            self.progress.reset(self.task, completed=done)
            return
        speed = self.units / max(1e-9, time.monotonic() - self.begun)
        self.progress.update(self.task, completed=done, speed=f"{speed:,.0f} {self.unit}/s" if self.units else "")

    def counting(self, answer: Answer) -> Answer:
        """The same function, with its units counted for the speed."""

        def counted(texts: list[str], progress: Progress) -> list[str]:
            before = self.units

            def count(done: int, total: int) -> None:
                self.units = before + done
                progress(done, total)

            return answer(texts, count)

        return counted
