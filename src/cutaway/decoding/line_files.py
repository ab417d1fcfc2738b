"""Processes files and streams of any length line by line, in constant memory: output line n answers input line n.

Lines are read in windows; the lines of a window are answered together and their answers written in order. A pipe is
read as it comes, so that `tail -f` works, too.

An interrupted output file can be resumed. Its complete lines are kept, a half-written one is cut off. Windows fall on
the same lines as before, and one that was answered in part is computed again, so that even the last digit of a score
is that of an uninterrupted run. A file `.NAME.progress` beside the output holds the settings of the run and a
fingerprint of the input so far: resuming with another input or other settings is refused, also when the file is
complete.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from cutaway.arguments import Progress
from cutaway.errors import InputError
from cutaway.files import lock_file, read_json, remove_temporary, write_json

Answer = Callable[[list[str], Progress], list[str]]  # texts → one line for each
WINDOW = 1 << 17  # bytes; some thousand lines
FIRST = 1 << 12  # the first window is small, so that the first answers come soon


def windows(source: BufferedIOBase) -> Iterator[list[bytes]]:
    """The lines of a stream without their line ends, as many at a time as are available and fit into a window."""
    size, rest = FIRST, [b""]
    read = source.read if is_file(source) else source.read1
    while data := read(size):
        first, *lines = data.split(b"\n")
        rest.append(first)
        if lines:
            yield [b"".join(rest), *lines[:-1]]
            rest = [lines[-1]]
        size = min(2 * size, WINDOW)
    if last := b"".join(rest):
        yield [last]


def is_file(source: BufferedIOBase) -> bool:
    """Whether the stream is a regular file, not a pipe."""
    try:
        return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except OSError:
        return False


def stream(
    source: BufferedIOBase,
    sink: BufferedIOBase,
    answer: Answer,
    *,
    name: str = "the input",
    progress: Progress | None = None,
) -> int:
    """Answers every line of a stream; returns how many there were."""
    return sum(len(lines) for lines in _answered(windows(source), sink, answer, name, 0, progress))


def to_file(
    source: BufferedIOBase,
    output: Path,
    answer: Answer,
    *,
    settings: Mapping[str, Any],
    resume: bool = False,
    name: str = "the input",
    progress: Progress | None = None,
) -> int:
    """Answers every line into a file, or with `resume` those that are missing; returns how many these were."""
    with _open_output(output, settings, resume) as (sink, earlier):
        count, digest = 0, hashlib.sha256()

        def checked_windows() -> Iterator[list[bytes]]:
            """All lines; those that the earlier run had read must be the same."""
            nonlocal count
            for lines in windows(source):
                for line in lines:
                    digest.update(line + b"\n")
                    count += 1
                    if count == earlier.read and digest.hexdigest() != earlier.digest:
                        raise InputError(
                            f"{name} is not the input that {output} was started with: its first {count} lines differ"
                        )
                yield lines

        new = 0
        for lines in _answered(checked_windows(), sink, answer, name, earlier.answered, progress):
            new += len(lines)
            os.fsync(sink.fileno())
            write_json(_record(output), {"lines": count, "sha256": digest.hexdigest(), "settings": dict(settings)})
        if count < (n_earlier := max(earlier.answered, earlier.read)):
            raise InputError(f"{output} answers {n_earlier} lines, but {name} has only {count}: this is another input")
        remove_temporary(_record(output))
        return new


def _answered(
    source: Iterator[list[bytes]],
    sink: BufferedIOBase,
    answer: Answer,
    name: str,
    n_earlier: int,
    progress: Progress | None,
) -> Iterator[list[bytes]]:
    """Writes the answers of each window, then yields its lines; the first `n_earlier` lines have answers already."""
    before = 0
    if progress is not None:
        progress(n_earlier, n_earlier)
    for lines in source:
        skip, before = max(0, n_earlier - before), before + len(lines)
        if skip >= len(lines):
            continue
        texts, error = _decoded(lines, name, before - len(lines))

        def count(done: int, total: int, skip: int = skip, before: int = before, n: int = len(lines)) -> None:
            if progress is not None:
                progress(before - n + max(skip, n * done // max(1, total)), before)

        stripped = [text.removesuffix("\r") for text in texts]
        answers, refusal = _answers_until_refusal(answer, stripped, count) if stripped else ([], None)
        answered = texts if refusal is None else texts[: len(answers)]
        ends = ["\r\n" if text.endswith("\r") else "\n" for text in answered]
        written = [_one_line(text) + end for text, end in zip(answers, ends, strict=True)]
        sink.write("".join(written[skip:]).encode())
        sink.flush()
        if refusal is not None:
            reason = re.sub(r"^text 1( of 1)?:? ", "", str(refusal))
            raise InputError(f"{name}, line {before - len(lines) + len(answers) + 1}: {reason}") from None
        count(1, 1)
        if error is not None:
            raise error
        yield lines[skip:]


def _answers_until_refusal(answer: Answer, texts: list[str], progress: Progress) -> tuple[list[str], InputError | None]:
    """The answers to all texts before the first that is refused, and the error of that one.

    It is found by bisection. Most texts are refused before any is answered, so little is computed twice; where the
    search itself gives up, the work is at most three times that of the window.
    """
    try:
        return answer(texts, progress), None
    except InputError as refusal:
        if len(texts) < 2:
            return [], refusal
        half = len(texts) // 2
        answers, first = _answers_until_refusal(answer, texts[:half], lambda done, total: None)
        if first is not None:
            return answers, first
        more, second = _answers_until_refusal(answer, texts[half:], lambda done, total: None)
        return answers + more, second


def _decoded(lines: list[bytes], name: str, before: int) -> tuple[list[str], InputError | None]:
    """The lines as text, up to the first that is not UTF-8."""
    texts = []
    for number, line in enumerate(lines, before + 1):
        try:
            text = line.decode()
            texts.append(text.removeprefix("\ufeff") if number == 1 else text)  # a byte order mark
        except UnicodeDecodeError as error:
            return texts, InputError(f"{name}, line {number}: not UTF-8 ({error.reason} at byte {error.start})")
    return texts, None


def _one_line(text: str) -> str:
    """Without line ends, which a model may generate."""
    return re.sub(r"[\r\n]+", " ", text)


@dataclass(frozen=True)
class EarlierRun:
    """How many lines an earlier run had answered, and a fingerprint of those that it had read."""

    answered: int
    read: int
    digest: str


def _record(output: Path) -> Path:
    return output.with_name(f".{output.name}.progress")


@contextmanager
def _open_output(
    output: Path, settings: Mapping[str, Any], resume: bool
) -> Iterator[tuple[BufferedIOBase, EarlierRun]]:
    """The file, locked and ready for the next answer, and what an earlier run has left in it."""
    record = _record(output)
    try:
        with open(os.open(output, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            if not lock_file(file.fileno()):
                raise InputError(f"{output} is being written by another run")
            answered, size = _complete(file)
            if file.tell() and not resume:
                raise InputError(f"{output} already exists: continue it with --resume, or remove it")
            if not file.tell():
                write_json(record, {"lines": 0, "sha256": hashlib.sha256().hexdigest(), "settings": dict(settings)})
            earlier = _earlier_run(output, answered, settings)
            file.truncate(size)
            file.seek(size)
            yield file, earlier
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def _earlier_run(output: Path, answered: int, ours: Mapping[str, Any]) -> EarlierRun:
    """What the record says; its settings have to be ours."""
    record = _record(output)
    if not record.exists():
        raise InputError(f"{output} exists, but {record.name} with its settings does not: remove {output}")
    match read_json(record):
        case {"lines": int(read), "sha256": str(digest), "settings": dict(theirs)}:
            other = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
            if other:
                changes = ", ".join(f"{key} was {theirs.get(key)!r} and is {ours.get(key)!r}" for key in other)
                raise InputError(f"{output} was started with other settings: {changes}; use those, or remove {output}")
            return EarlierRun(answered, read, digest)
    raise InputError(f"{record} is not a record of a run: remove {output}")


def _complete(file: BufferedIOBase) -> tuple[int, int]:
    """How many complete lines a file has, and how many bytes they take."""
    lines = size = at = 0
    while data := file.read(1 << 20):
        if b"\n" in data:
            lines += data.count(b"\n")
            size = at + data.rindex(b"\n") + 1
        at += len(data)
    return lines, size
