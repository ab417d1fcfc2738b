"""The text of the ladder: each file in three parts, and one tokenizer for all.

    train      the first part: for all models, and for the tokenizer
    valid      the next twentieth: networks keep the weights that score best on it
    held out   the last tenth: all models are scored on it, and on nothing else

Tokens are bytes, or byte-level BPE where there is enough text: nothing is unknown, and the tokens of a part spell its
bytes. The first token of a held-out piece has no context and is not scored.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from cutaway.before.ngrams.counts import Ids
from cutaway.data.corpus import tokenised_documents
from cutaway.data.text_files import read_documents
from cutaway.decoding.rules.token_bytes import pieces_of
from cutaway.errors import InputError
from cutaway.files import replacing
from cutaway.tokens import Tokenizer, train_tokenizer

HELD_OUT, VALID = 0.1, 0.05  # shares of each file …
MOST_HELD_OUT = 400_000  # … and at most so many characters of all of them; half as many to validate with
MERGED = (
    (10_000_000, 4000),
    (200_000, 1000),
)  # characters to learn from, and the size of the vocabulary: from there on
TOKENIZER = "tokenizer"
LEAST = 20  # characters of a file
FEW = 50_000  # characters, below which the table says little


@dataclass(frozen=True)
class Parts:
    """The three parts of the text, with one piece of each file."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    held_out: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        whole = "\0\0".join("\0".join(part) for part in (self.train, self.valid, self.held_out))
        return hashlib.sha256(whole.encode()).hexdigest()


def read_parts(files: Sequence[Path]) -> Parts:
    """Splits the files; refuses one that is missing, empty, binary or too short."""
    texts = [_read(path) for path in files]
    share = min(1.0, MOST_HELD_OUT / (HELD_OUT * sum(map(len, texts))))
    found = [_parted(text, share, path) for text, path in zip(texts, files, strict=True)]
    return Parts(*(tuple(part) for part in zip(*found, strict=True)))


def _read(path: Path) -> str:
    text = "".join(piece.text for piece in read_documents([path]))
    if "\0" in text:
        raise InputError(f"{path} is binary: it contains the character 0")
    if len(text) < LEAST:
        raise InputError(
            f"{path} has {len(text)} characters: too little for training and for testing; at least {LEAST} are needed"
        )
    return text


def _parted(text: str, share: float, path: Path) -> tuple[str, str, str]:
    """Splits a text at the ends of words."""
    last = _word_end(text, len(text) - max(round(len(text) * HELD_OUT * share), 4), path)
    first = _word_end(text, last - max(round(len(text) * VALID * share), 4), path)
    found = text[:first], text[first:last], text[last:]
    if not all(map(str.strip, found)):
        raise InputError(f"{path} is too short: a part of it would be only white space")
    return found


def _word_end(text: str, at: int, path: Path) -> int:
    """The last position up to `at` that is followed by white space."""
    while at > 1 and not text[at].isspace():
        at -= 1
    if at <= 1:
        raise InputError(f"{path} has no white space where it could be split into parts")
    return at


def refuse_marks(files: Sequence[Path], parts: Parts, tokenizer: Tokenizer) -> None:
    """Refuses a text that contains a special token such as <eos>, which would end it there."""
    for path, *texts in zip(files, parts.train, parts.valid, parts.held_out, strict=True):
        for mark in tokenizer.special_ids():
            if any(mark in text for text in texts):
                raise InputError(f"{path} contains {mark}, a special token of the tokenizer: write it differently")


@dataclass(frozen=True, eq=False)
class Tokenised:
    """The parts as ids: `train` in one row with <eos> after each piece; `held_out` a row for each piece."""

    folder: Path
    tokenizer: Tokenizer
    unit: str
    train: Ids
    held_out: tuple[Int64[np.ndarray, " _"], ...]
    n_valid: int  # tokens

    @property
    def end(self) -> int:
        assert self.tokenizer.eos_id is not None
        return self.tokenizer.eos_id

    def files(self, part: str) -> list[Path]:
        """The files of a part."""
        return sorted((self.folder / part).iterdir(), key=lambda path: int(path.stem))

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / TOKENIZER

    def lengths(self, ids: Ids) -> Int64[np.ndarray, " token"]:
        """Bytes of each token."""
        return np.array([len(piece or b"") for piece in pieces_of(self.tokenizer, begun=True).bytes], np.int64)[ids]

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of the held-out text that are scored."""
        return sum(int(self.lengths(ids[1:]).sum()) for ids in self.held_out)


def tokenised(parts: Parts, folder: Path) -> Tokenised:
    """Writes the parts into a folder, trains a tokenizer on the first, and encodes them."""
    for part in ("train", "valid", "held_out"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(getattr(parts, part)):
            with replacing(folder / part / f"{number}.txt") as temporary:
                temporary.write_text(text, encoding="utf-8", newline="")
    size = sum(map(len, parts.train))
    vocab_size = next((vocab_size for least, vocab_size in MERGED if size >= least), None)
    learnt, valid = ([folder / part / f"{i}.txt" for i in range(len(parts.train))] for part in ("train", "valid"))
    if not (folder / TOKENIZER).exists():
        pieces = (piece.text for piece in read_documents(learnt))
        trained = train_tokenizer(pieces, kind="byte" if vocab_size is None else "bpe", vocab_size=vocab_size)
        trained.save(folder / TOKENIZER)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    held_out = tuple(np.array(tokenizer.encode(text, special=False), np.int64) for text in parts.held_out)
    if min(map(len, held_out)) < 2:
        raise InputError("too little is held out: each file needs at least two held-out tokens")
    end_id = tokenizer.eos_id
    corpus, other = (tokenised_documents(part, tokenizer, end_id=end_id) for part in (learnt, valid))
    unit = "bytes" if vocab_size is None else f"tokens of a vocabulary of {tokenizer.vocab_size:,}"
    return Tokenised(folder, tokenizer, unit, corpus.ids, held_out, len(other.ids))
