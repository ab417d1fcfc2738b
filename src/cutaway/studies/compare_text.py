"""The text that the ladder is trained on and measured with: three parts of each file, and one way to cut them all.

    train      the first part: all rungs learn from it, and so do the tokens
    valid      the next twentieth: networks keep the weights that tell it best
    held out   the last tenth: every rung is scored on it, and on nothing else

Tokens are bytes, or bytes merged (BPE) where there is text enough: nothing is unknown, and the tokens of a part spell
its bytes. The first token of a held-out piece has no past, and nobody is scored on it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from cutaway.data.text import read_documents
from cutaway.decoding.pieces import pieces_of
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer, train_tokenizer

HELD_OUT, VALID = 0.1, 0.05  # shares of each file …
MOST_HELD_OUT = 400_000  # … and at most so many characters of all of them; half as many to validate with
MERGED = ((10_000_000, 4000), (200_000, 1000))  # characters to learn from, and the size of the vocabulary: from there on
LEAST = 40  # characters of a file
FEW = 50_000  # characters, below which the table says little


@dataclass(frozen=True)
class Parts:
    """One piece of each file in each part."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    held_out: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        whole = "\0\0".join("\0".join(part) for part in (self.train, self.valid, self.held_out))
        return hashlib.sha256(whole.encode()).hexdigest()


def read_parts(files: Sequence[Path]) -> Parts:
    """A file that is missing, empty, binary or too short is refused by name."""
    texts = [_read(path) for path in files]
    share = min(1.0, MOST_HELD_OUT / (HELD_OUT * sum(map(len, texts))))
    found = [_parted(text, share, path) for text, path in zip(texts, files, strict=True)]
    return Parts(*(tuple(part) for part in zip(*found, strict=True)))


def _read(path: Path) -> str:
    text = "".join(piece.text for piece in read_documents([path]))
    if "\0" in text:
        raise InputError(f"{path} is binary: the character 0 stands in it, and in no text")
    if len(text) < LEAST:
        raise InputError(
            f"{path} has {len(text)} characters: too little to learn from and to hold out; {LEAST} are the least"
        )
    return text


def _parted(text: str, share: float, path: Path) -> tuple[str, str, str]:
    """Cut where words end, so that no word is half in one part and half in the next."""
    last = _word_end(text, len(text) - max(round(len(text) * HELD_OUT * share), 4), path)
    first = _word_end(text, last - max(round(len(text) * VALID * share), 4), path)
    return text[:first], text[first:last], text[last:]


def _word_end(text: str, at: int, path: Path) -> int:
    """The last place up to `at` with white space behind it."""
    while at > 1 and not text[at].isspace():
        at -= 1
    if at <= 1:
        raise InputError(f"{path} has no words to part: white space is looked for where a part ends")
    return at


@dataclass(frozen=True, eq=False)
class Tokenised:
    """`train` is one row, <eos> behind each piece; `held_out` one row for each piece, without an end."""

    tokenizer: Tokenizer
    unit: str
    train: Int64[np.ndarray, " token"]
    held_out: tuple[Int64[np.ndarray, " _"], ...]
    valid_tokens: int

    @property
    def end(self) -> int:
        assert self.tokenizer.eos_id is not None
        return self.tokenizer.eos_id

    @cached_property
    def lengths(self) -> Int64[np.ndarray, " scored"]:
        """Bytes of each token that is scored."""
        spelt = np.array([len(piece or b"") for piece in pieces_of(self.tokenizer, begun=True).bytes])
        return np.concatenate([spelt[ids[1:]] for ids in self.held_out])

    @property
    def n_bytes(self) -> int:
        """Of held-out text that is scored."""
        return int(self.lengths.sum())


def tokenised(parts: Parts, tokenizer: Tokenizer | None = None) -> Tokenised:
    """With a tokenizer of the training part, unless there is one already."""
    size = sum(map(len, parts.train))
    vocab_size = next((vocab_size for least, vocab_size in MERGED if size >= least), None)
    if tokenizer is None:
        kind = "byte" if vocab_size is None else "bpe"
        tokenizer = train_tokenizer(parts.train, kind=kind, vocab_size=vocab_size)
    end = tokenizer.eos_id
    rows = [[*tokenizer.encode(text, special=False), end] for text in parts.train]
    held_out = tuple(np.array(tokenizer.encode(text, special=False), np.int64) for text in parts.held_out)
    valid = sum(1 + len(tokenizer.encode(text, special=False)) for text in parts.valid)
    unit = "bytes" if vocab_size is None else f"{tokenizer.vocab_size:,} pieces of words"
    return Tokenised(tokenizer, unit, np.array([id for row in rows for id in row], np.int64), held_out, valid)
