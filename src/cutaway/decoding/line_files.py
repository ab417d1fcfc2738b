"""Files and streams of any length, line by line in constant memory: line n of the output answers line n of the input.

A window of lines is read ahead and answered together; then its answers are written, in order. What a pipe holds is
taken as it comes, so that `tail -f` is answered too.

A file that a run was writing when it was killed can be gone on with. Its complete lines are the answers that are there,
a half-written one is cut off. The windows of a file fall where they fell before, and one that was half answered is
answered anew, so that even the last digit of a score is that of an uninterrupted run. `.NAME.progress` beside the
output remembers what the run was asked, and a fingerprint of the input so far: going on with another input or other
options is refused. It stays when the file is complete, so that this holds then, too.
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

from cutaway.errors import InputError
from cutaway.files import lock_file, read_json, remove_temporary, write_json

Report = Callable[[int, int], None]
Answer = Callable[[list[str], Report], list[str]]  # texts → one line for each; tells how many of how many are done
WINDOW = 1 << 17  # bytes; some thousand lines
FIRST = 1 << 12  # the first window is small, so that the first answers come soon


def windows(source: BufferedIOBase) -> Iterator[list[bytes]]:
    """The lines of a stream, without their ends, as many at a time as there are at hand and fit into a window."""
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
    """Whether all of it is there, unlike a pipe's."""
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
    report: Report | None = None,
) -> int:
    """Answers every line of a stream. How many there were."""
    return sum(len(lines) for lines in _answered(windows(source), sink, answer, name, 0, report))


def to_file(
    source: BufferedIOBase,
    output: Path,
    answer: Answer,
    *,
    settings: Mapping[str, Any],
    resume: bool = False,
    name: str = "the input",
    report: Report | None = None,
) -> int:
    """Answers every line into a file, or those that are missing from it; how many these were."""
    with _opened(output, settings, resume) as (sink, kept):
        count, digest = 0, hashlib.sha256()

        def checked() -> Iterator[list[bytes]]:
            """All lines; those that have an answer are compared with what the run had read."""
            nonlocal count
            for lines in windows(source):
                for line in lines:
                    digest.update(line + b"\n")
                    count += 1
                    if count == kept.read and digest.hexdigest() != kept.digest:
                        raise InputError(f"{name} is not what {output} was begun with: its first {count} lines differ")
                yield lines

        new = 0
        for lines in _answered(checked(), sink, answer, name, kept.answered, report):
            new += len(lines)
            os.fsync(sink.fileno())
            write_json(_record(output), {"lines": count, "sha256": digest.hexdigest(), "settings": dict(settings)})
        if count < (there := max(kept.answered, kept.read)):
            raise InputError(f"{output} answers {there} lines, {name} has only {count}: it is another input")
        remove_temporary(_record(output))  # where nothing was left to answer, nobody has written it
        return new


def _answered(
    source: Iterator[list[bytes]], sink: BufferedIOBase, answer: Answer, name: str, there: int, report: Report | None
) -> Iterator[list[bytes]]:
    """The lines of each window that had no answer, once it is written; the first `there` have one."""
    before = 0
    if report is not None:
        report(there, there)
    for lines in source:
        skip, before = max(0, there - before), before + len(lines)
        if skip >= len(lines):
            continue
        texts, error = _decoded(lines, name, before - len(lines))

        def tell(done: int, total: int, skip: int = skip, before: int = before, n: int = len(lines)) -> None:
            if report is not None:
                report(before - n + max(skip, n * done // max(1, total)), before)

        asked = [text.removesuffix("\r") for text in texts]
        answers, refusal = _tried(answer, asked, tell) if asked else ([], None)
        answered = texts if refusal is None else texts[: len(answers)]
        ends = ["\r\n" if text.endswith("\r") else "\n" for text in answered]
        said = [_one_line(text) + end for text, end in zip(answers, ends, strict=True)]
        sink.write("".join(said[skip:]).encode())
        sink.flush()
        if refusal is not None:
            reason = re.sub(r"^text 1( of 1)?:? ", "", str(refusal))
            raise InputError(f"{name}, line {before - len(lines) + len(answers) + 1}: {reason}") from None
        tell(1, 1)
        if error is not None:
            raise error
        yield lines[skip:]


def _tried(answer: Answer, texts: list[str], tell: Report) -> tuple[list[str], InputError | None]:
    """The answers to all texts before the first that is refused, and why it is.

    It is found by halves. Most are refused before any is answered, and little is done twice; where the search itself
    gives up, all that is done is at most three times the work of the window.
    """
    try:
        return answer(texts, tell), None
    except InputError as refusal:
        if len(texts) < 2:
            return [], refusal
        half = len(texts) // 2
        answers, first = _tried(answer, texts[:half], lambda done, total: None)
        if first is not None:
            return answers, first
        more, second = _tried(answer, texts[half:], lambda done, total: None)
        return answers + more, second


def _decoded(lines: list[bytes], name: str, before: int) -> tuple[list[str], InputError | None]:
    """The lines as text, up to the first that is none."""
    texts = []
    for number, line in enumerate(lines, before + 1):
        try:
            text = line.decode()
            texts.append(text.removeprefix("\ufeff") if number == 1 else text)  # some editors mark a file so
        except UnicodeDecodeError as error:
            return texts, InputError(f"{name}, line {number}: not UTF-8 ({error.reason} at byte {error.start})")
    return texts, None


def _one_line(text: str) -> str:
    """A model may write anything, also what ends a line."""
    return re.sub(r"[\r\n]+", " ", text)


@dataclass(frozen=True)
class Kept:
    """What an earlier run left: answers, and a fingerprint of the lines that it had `read` by then."""

    answered: int
    read: int
    digest: str


def _record(output: Path) -> Path:
    return output.with_name(f".{output.name}.progress")


@contextmanager
def _opened(output: Path, settings: Mapping[str, Any], resume: bool) -> Iterator[tuple[BufferedIOBase, Kept]]:
    """The file, ready for the next answer, and what it holds; nobody else may write it meanwhile."""
    record = _record(output)
    try:
        with open(os.open(output, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            if not lock_file(file.fileno()):
                raise InputError(f"{output} is being written by another run")
            answered, size = _complete(file)
            if file.tell() and not resume:
                raise InputError(f"{output} is there already: --resume goes on with it; else remove it")
            if not file.tell():
                write_json(record, {"lines": 0, "sha256": hashlib.sha256().hexdigest(), "settings": dict(settings)})
            kept = _kept(output, answered, settings)
            file.truncate(size)
            file.seek(size)
            yield file, kept
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def _kept(output: Path, answered: int, ours: Mapping[str, Any]) -> Kept:
    """What the record says, where the same is asked again."""
    record = _record(output)
    if not record.exists():
        raise InputError(f"{output} is there, but not {record.name}, which says what was asked: remove {output}")
    match read_json(record):
        case {"lines": int(read), "sha256": str(digest), "settings": dict(theirs)}:
            other = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
            if other:
                said = ", ".join(f"{key} was {theirs.get(key)!r} and is {ours.get(key)!r}" for key in other)
                raise InputError(f"{output} was begun otherwise: {said}; ask as then, or remove {output}")
            return Kept(answered, read, digest)
    raise InputError(f"{record} is no record of lines: remove {output}")


def _complete(file: BufferedIOBase) -> tuple[int, int]:
    """How many lines of a file are complete, and how many bytes these have."""
    lines = size = at = 0
    while data := file.read(1 << 20):
        if b"\n" in data:
            lines += data.count(b"\n")
            size = at + data.rindex(b"\n") + 1
        at += len(data)
    return lines, size
