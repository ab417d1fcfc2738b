"""Text files → lines, or documents in pieces. Plain, gzip and xz, told apart by their first bytes, not by their names.

    for line in read_lines(Path("train.de.gz")): ...
    for piece in read_documents([Path("books.xz")], split="form_feed"): ...

Only a few megabytes are in memory at any time, however long the file or the document. Text is UTF-8, strictly; a
byte-order mark is dropped, and \\r\\n is read as \\n.
"""

import io
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from cutaway.data.order import random_number
from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, regular_size
from cutaway.unpacked import DAMAGED, open_unpacked

Split = Literal["file", "line", "form_feed", "blank_line"]
Progress = Callable[[int, int], None]  # done, total

BLOCK = MEGABYTE
LONGEST_LINE = MEGABYTE
LONGEST_LINE_OF_A_DOCUMENT = 10 * MEGABYTE
PIECE = 1 << 16  # characters; small, so that all cores get some
WINDOW = 1 << 14  # so far behind a full piece we look for a good place to cut
WIDTHS = range(64, 77)  # of the lines of printed books
BINARY = 1 << 13  # bytes among which a binary file has a 0
DESERT = 1 << 14  # white space that is cut anywhere: its tokens teach nothing, and to look for its end takes long

FOREIGN = {
    b"PK\x03\x04": "is a zip archive: unpack it first",
    b"(\xb5/\xfd": "is compressed with zstd: unpack it first",
    b"\xff\xfe": "is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
}


class TextPiece(NamedTuple):
    """Some text of a document; `ends` is true at the last of it."""

    text: str
    ends: bool


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of a text without their ends; one of more than `longest` bytes is an error."""
    for text in _blocks(path, longest, None):
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()  # behind the last \n begins no line
        yield from lines


def read_documents(
    paths: Sequence[Path], split: Split = "file", progress: Progress | None = None, wrap: float = 0.0
) -> Iterator[TextPiece]:
    """The documents of some files, in pieces of about 64 thousand characters.

    A document is a file, a line, what stands between form feeds, or between blank lines; those of only white space are
    left out. Pieces are cut where a tokenizer cuts anyway (`_place_to_cut`), so that their ids, one after the other,
    are those of the whole. `progress` gets how many bytes of the files have been read, and of how many. `wrap` is the
    share of the documents whose long lines are broken (`wrapped_lines`).
    """
    if split not in get_args(Split):
        raise InputError(f"split={split!r}: documents are separated by {', '.join(get_args(Split))}")
    done, to_wrap = 0, Wrap(wrap)
    total = sum(map(file_size, paths)) if progress is not None else 0
    for path in paths:

        def tell(place: int, before: int = done) -> None:
            if progress is not None:
                progress(before + place, total)

        empty = True
        for piece in _assemble(to_wrap(_parts(path, split, tell))):
            empty = False
            yield piece
        if empty:
            raise InputError(f"{path} holds only white space")
        done += file_size(path)


def without_documents(pieces: Iterator[TextPiece], left_out: Container[int]) -> Iterator[TextPiece]:
    """The documents except those with these numbers."""
    number = 0
    for piece in pieces:
        if number not in left_out:
            yield piece
        number += piece.ends


def _parts(path: Path, split: Split, at: Callable[[int], None] | None) -> Iterator[str | None]:
    """Stretches of text of any length; None ends a document."""
    between = ""  # what joins the next line to those before it
    for text in _blocks(path, LONGEST_LINE_OF_A_DOCUMENT, at):
        match split:
            case "file":
                yield text
            case "form_feed":
                first, *others = text.split("\f")
                yield first
                for other in others:
                    yield None
                    yield other
            case "line":
                for line in text.split("\n"):
                    yield line
                    yield None
            case "blank_line":
                for line in text.removesuffix("\n").split("\n"):
                    blank = not line or line.isspace()
                    yield None if blank else between + line
                    between = "" if blank else "\n"
    yield None


class Wrap:
    """Breaks the lines of some documents, as printed books do: each at its own width, which is always the same."""

    def __init__(self, share: float) -> None:
        self.share, self.n_documents = share, 0

    def __call__(self, parts: Iterator[str | None]) -> Iterator[str | None]:
        if not self.share:
            yield from parts
            return
        for part in parts:
            drawn = random_number(1 << 32, self.n_documents) / (1 << 32)
            yield (
                part
                if part is None or drawn >= self.share
                else wrapped_lines(part, WIDTHS[self.n_documents % len(WIDTHS)])
            )
            self.n_documents += part is None


def wrapped_lines(text: str, width: int) -> str:
    """Lines of more than `width` characters are broken at the last space before it; no byte more, no byte less."""
    return re.sub(rf"(?=[^\n]{{{width + 1}}})([^\n]{{0,{width - 1}}}[^\n ]) (?! )", r"\1\n", text)


def _assemble(parts: Iterator[str | None]) -> Iterator[TextPiece]:
    """Gather stretches into pieces."""
    waiting: list[str] = []
    length, begun = 0, False
    for part in parts:
        if part is not None:
            waiting.append(part)
            length += len(part)
            if length <= PIECE + WINDOW:
                continue
            *pieces, rest = _cut("".join(waiting))
            yield from (TextPiece(piece, False) for piece in pieces)
            begun = begun or bool(pieces)
            waiting, length = [rest], len(rest)
        else:
            text = "".join(waiting)
            if begun or (text and not text.isspace()):
                yield TextPiece(text, True)
            waiting, length, begun = [], 0, False


def _cut(text: str) -> list[str]:
    """Pieces, the last of which may be short and waits for more."""
    pieces, start = [], 0
    while len(text) - start > PIECE + WINDOW:
        place = _place_to_cut(text, start + PIECE)
        if place is None:
            break
        pieces.append(text[start:place])
        start = place
    return [*pieces, text[start:]]


# Where to cut, the best first. GPT-2's words (and Llama 3's) end before a space and around a single \n. In a longer
# run of white space GPT-2's end before its last character, which it leaves to the next word. BERT drops the rarer kinds
# of white space that are not named here, and joins what they parted.
_AFTER_NEWLINE = re.compile(r"\S\n(?=\S)")
_BEFORE_SPACE = re.compile(r"\S(?= \S)")
_BEFORE_LAST_SPACE = re.compile(r"(?=[ \t\n\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]\S)")


def _place_to_cut(text: str, at: int) -> int | None:
    """The next place from `at` on where the words of byte-level BPE end whatever follows; None where we must read on.

    The other kinds that we know end a word there as well, or have none. Those that begin every text with a mark
    (SentencePiece's ▁) put one before every piece: one token in some sixteen thousand.
    """
    for pattern in (_AFTER_NEWLINE, _BEFORE_SPACE):
        if found := pattern.search(text, at, at + WINDOW):
            return found.end()
    if text[at : at + DESERT].isspace():
        return at
    if found := _BEFORE_LAST_SPACE.search(text, at):
        return found.start()
    return at if len(text) - at > LONGEST_LINE_OF_A_DOCUMENT else None


def _blocks(path: Path, longest: int, at: Callable[[int], None] | None) -> Iterator[str]:
    """Whole lines, about a megabyte at a time."""
    line, rest, first = 1, b"", True
    with open_bytes(path) as (file, place):
        while data := read_some(file, path, min(BLOCK, longest)):  # so no line within a block is too long
            cut = data.rfind(b"\n") + 1
            end_of_first = data.find(b"\n") if cut else len(data)
            if len(rest) + end_of_first > longest:
                raise InputError(
                    f"{path}, line {line}: more than {longest:,} bytes without a line end; "
                    "break the line, or check that this is a text"
                )
            whole, rest = (rest + data[:cut], data[cut:]) if cut else (b"", rest + data)
            if whole:
                yield _text(whole, path, line, first)
                line, first = line + whole.count(b"\n"), False
            if at is not None:
                at(place())
    if rest:
        yield _text(rest, path, line, first)
    elif first:
        raise InputError(f"{path} is empty")


def _text(data: bytes, path: Path, line: int, first: bool) -> str:
    try:
        text = data.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        data = error.object  # without the byte-order mark
        if b"\0" in data[:BINARY]:
            raise InputError(f"{path} is binary: give it text") from None
        line += data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise InputError(
            f"{path}, line {line}: not UTF-8 (the byte 0x{data[error.start]:02x} at place {column}); "
            "convert the file with iconv -f LATIN1 -t UTF-8, or whatever it was written in"
        ) from None
    return text.replace("\r\n", "\n") if "\r" in text else text


def file_size(path: Path) -> int:
    """The size of a regular file on the disk."""
    try:
        return regular_size(path)
    except CheckpointError as error:
        raise InputError(str(error)) from None


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[io.BufferedReader, Callable[[], int]]]:
    """A file for reading, unpacked, and a function that says how far we are in it as it lies on the disk."""
    if not file_size(path):
        raise InputError(f"{path} is empty")
    try:
        with path.open("rb") as raw:
            magic = raw.read(8)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    for start, what in FOREIGN.items():
        if magic.startswith(start):
            raise InputError(f"{path} {what}")
    with open_unpacked(path) as opened:
        yield opened


def read_some(file: io.BufferedReader, path: Path, most: int) -> bytes:
    """The next bytes of what `open_bytes` opened: as many as asked for, or the last."""
    try:
        return file.read(most)
    except DAMAGED as error:
        raise InputError(f"{path} is damaged or cut short: {error}") from None
