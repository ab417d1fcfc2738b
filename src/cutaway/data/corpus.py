"""Texts as token sequences on the disk: cut into tokens once, and mapped into memory from then on.

    corpus = tokenised_documents([Path("books.xz")], tokenizer, split="form_feed", end_id=tokenizer.eos_id)
    corpus[0]                    # the ids of the first book
    corpus.ids                   # all of them, one after the other

To make one takes as little memory for a library as for a page; the next time it comes from the cache.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any, BinaryIO, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutaway.data.cache import Array, cached, facts, open_array
from cutaway.data.text_files import Split, TextPiece, read_documents, without_documents
from cutaway.errors import InputError
from cutaway.files import MEGABYTE
from cutaway.tokens.library_errors import input_errors
from cutaway.tokens.tokenizer import Tokenizer

BATCH = 2 * MEGABYTE  # characters that are cut at a time: enough for all cores, and some 200 bytes of memory each
MOST_TEXTS = 4096

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Token sequences that lie one after the other: sequence i is ids[starts[i]:starts[i + 1]]."""

    ids: Array
    starts: NDArray[np.int64]
    n_bytes: int  # of the text, as UTF-8: what bits per byte are counted by
    fingerprint: str  # of the text, the tokenizer and the way of reading

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, i: SupportsIndex) -> Array:
        place = index(i)
        if not -len(self) <= place < len(self):
            raise IndexError(f"sequence {place} of {len(self)}")
        place %= len(self)
        return self.ids[self.starts[place] : self.starts[place + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens in each sequence."""
        return np.diff(self.starts)

    def cut(self, longest: int) -> "Corpus":
        """The same tokens in sequences of at most `longest`: longer ones become several, all about as long."""
        lengths = self.lengths
        n = -(-lengths // longest)  # how many each becomes
        which = np.repeat(np.arange(len(self)), n)
        number = np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
        starts = self.starts[which] + lengths[which] * number // n[which]
        return replace(self, starts=np.append(starts, self.starts[-1]))


def tokenised_documents(
    paths: Sequence[Path],
    tokenizer: Tokenizer,
    *,
    split: Split = "file",
    end_id: int | None,
    part: tuple[int, int] | None = None,
    wrap: float = 0.0,
    left_out: Sequence[int] = (),
    cache: Path | None = None,
) -> Corpus:
    """The documents of some files as tokens, `end_id` behind each; documents without a token are left out.

    `part` is what is read of the text (`part_of`). `wrap` is the share of the documents whose long lines are broken, as
    in printed books. `left_out` are numbers of documents that are not read.
    """
    if not paths:
        raise InputError("no files to read documents from")
    if end_id is not None and not 0 <= end_id < tokenizer.vocab_size:
        raise InputError(f"end_id={end_id} is outside the vocabulary 0 … {tokenizer.vocab_size - 1}")
    settings: dict[str, Any] = {"kind": "documents", "split": split, "end_id": end_id, "tokenizer": digest(tokenizer)}
    settings |= {"part": part} if part else {}
    settings |= {"wrap": wrap} if wrap else {}
    settings |= {"left_out": list(left_out)} if left_out else {}

    def build(folder: Path) -> dict[str, Any]:
        read = without_documents(read_documents(paths, split, wrap=wrap), set(left_out))
        read = part_of(read, split, *part) if part else read
        with SequenceWriter(folder, "text", id_dtype(tokenizer)) as writer:
            for pieces in batched(read, lambda piece: len(piece.text)):
                _write_pieces(pieces, tokenizer, end_id, writer)
        return {"text": writer.facts()}

    entry = cached(paths, settings, build, cache)
    corpus = open_corpus(entry, "text", facts(entry)["text"])
    if not len(corpus):
        raise InputError(f"{', '.join(map(str, paths))}: there is no text for which this tokenizer has tokens")
    return corpus


def size_of(paths: Sequence[Path], split: Split, cache: Path | None = None) -> int:
    """How long a text is: its characters, or its lines where each line is a document. They are counted once."""

    def build(folder: Path) -> dict[str, Any]:
        return {"size": sum(_size(piece, split) for piece in read_documents(paths, split))}

    return int(facts(cached(paths, {"kind": "size", "split": split}, build, cache))["size"])


def part_of(pieces: Iterable[TextPiece], split: Split, start: int, stop: int) -> Iterator[TextPiece]:
    """The places start … stop − 1 of a text, counted as in `size_of`; a document that is cut ends there."""
    at = 0
    for piece in pieces:
        begin, at = at, at + _size(piece, split)
        if split == "line":
            kept = piece if start <= begin < stop else TextPiece("", False)
        else:
            kept = TextPiece(piece.text[max(start - begin, 0) : max(stop - begin, 0)], piece.ends or at >= stop)
        if kept.text or (kept.ends and begin > start):
            yield kept
        if at >= stop:
            return


def _size(piece: TextPiece, split: Split) -> int:
    return piece.ends if split == "line" else len(piece.text)


def _write_pieces(pieces: list[TextPiece], tokenizer: Tokenizer, end_id: int | None, writer: "SequenceWriter") -> None:
    for piece, ids in zip(pieces, encoded(tokenizer, [piece.text for piece in pieces]), strict=True):
        writer.add(ids, piece.text)
        if piece.ends and writer.in_sequence:
            writer.end(end_id)


class SequenceWriter:
    """Writes sequences into two files, `name.ids` and `name.starts`, from beginning to end.

    Not through a memory map, whose written pages would count as our memory.
    """

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.dtype, self.n_tokens, self.n_sequences, self.n_bytes, self.in_sequence = dtype, 0, 0, 0, 0
        with ExitStack() as opened:
            self._ids: BinaryIO = opened.enter_context((folder / f"{name}.ids").open("wb", MEGABYTE))
            self._starts: BinaryIO = opened.enter_context((folder / f"{name}.starts").open("wb", MEGABYTE))
            self._close = opened.pop_all()
        self._starts.write(bytes(8))

    def __enter__(self) -> "SequenceWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._close.close()

    def add(self, ids: Sequence[int] | Sequence[float], text: str = "") -> None:
        """Some more tokens of a sequence, and the text that they were cut from."""
        self._ids.write(np.array(ids, self.dtype).tobytes())
        self.in_sequence += len(ids)
        self.n_bytes += len(text) if text.isascii() else len(text.encode())

    def end(self, end_id: int | None = None) -> None:
        """The sequence ends, with `end_id` if there is one."""
        if end_id is not None:
            self.add([end_id])
        self.n_tokens += self.in_sequence
        self.n_sequences += 1
        self.in_sequence = 0
        self._starts.write(self.n_tokens.to_bytes(8, "little"))

    def add_several(self, ids: NDArray[Any], lengths: NDArray[np.int64], text: str) -> None:
        """Several sequences, one after another, all of the same text."""
        self._ids.write(ids.astype(self.dtype).tobytes())
        ends = self.n_tokens + np.cumsum(lengths)
        self._starts.write(ends.astype("<i8").tobytes())
        self.n_tokens, self.n_sequences = int(ends[-1]), self.n_sequences + len(ends)
        self.n_bytes += len(ends) * len(text.encode())

    def facts(self) -> dict[str, Any]:
        """What `open_corpus` has to know."""
        return {
            "dtype": self.dtype,
            "n_tokens": self.n_tokens,
            "n_sequences": self.n_sequences,
            "n_bytes": self.n_bytes,
        }


def open_corpus(entry: Path, name: str, said: Mapping[str, Any]) -> Corpus:
    """What a `SequenceWriter` wrote, from an entry of the cache."""
    return Corpus(
        ids=open_array(entry / f"{name}.ids", said["dtype"], (said["n_tokens"],)),
        starts=open_array(entry / f"{name}.starts", "<i8", (said["n_sequences"] + 1,)),
        n_bytes=said["n_bytes"],
        fingerprint=hashlib.sha256(f"{entry.name} {name}".encode()).hexdigest(),
    )


def batched(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of items, large enough to keep all cores busy and small beside the memory."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= BATCH or len(batch) >= MOST_TEXTS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def encoded(tokenizer: Tokenizer, texts: list[str]) -> Iterator[list[int]]:
    """The ids of some texts, with nothing around them, cut on all cores."""
    with input_errors(tokenizer.file):  # without offsets, which are not needed: twice as fast
        encodings = tokenizer.backend.encode_batch_fast(texts, add_special_tokens=False)
    return (encoding.ids for encoding in encodings)


def id_dtype(tokenizer: Tokenizer) -> str:
    """The smallest kind of number that holds every id."""
    return "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"


def digest(tokenizer: Tokenizer) -> str:
    """SHA-256 of all that decides how a text is cut."""
    return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()
