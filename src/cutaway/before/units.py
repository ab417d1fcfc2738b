"""Text files → ids for the models before the Transformer: words, characters, bytes, or the tokens of a model.

    cut = Words()                                          # or Characters(), Bytes(), Tokens("books")
    text = read_ids(cut, [Path("novel.txt")])              # words and characters are learnt while reading
    test = read_ids(cut, [Path("other.txt")], new=False)   # those that are not known now are <unk>

Bytes and characters are lossless, so bits per byte of their models can be compared, also with a Transformer's. So can
those of tokens that spell the text exactly, such as byte-level BPE, but not those of a BERT. Words are in lower case,
without punctuation: predicting them is not predicting the text. <unk> is any unknown word, and <eos> ends a text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt32

from cutaway.arguments import Progress, no_progress
from cutaway.before.markov.sentences_of_words import EOS, plain_words
from cutaway.before.ngrams.ngram_of_words import UNK
from cutaway.checkpoints import load_tokenizer
from cutaway.data.corpus import batched, encoded
from cutaway.data.text_files import Split, TextPiece, file_size, read_documents
from cutaway.errors import CheckpointError, CutawayError, InputError

TextOfIds = UInt32[np.ndarray, " token"]


class Units(ABC):
    """A way to split text: `names[i]` is token i, `end` ends a text, and `unknown` is the unknown token, if any."""

    unit: str  # what its tokens are called, many of them
    whole: bool  # whether the ids may hold all of a text
    names: list[str]
    end: int
    unknown: int | None = None

    @abstractmethod
    def ids(self, text: str, new: bool) -> TextOfIds:
        """The ids of a text; with `new`, new tokens get an id, otherwise they are unknown."""

    def all_ids(self, texts: list[str], new: bool) -> Iterable[TextOfIds]:
        """The ids of several texts."""
        return (self.ids(text, new) for text in texts)

    @abstractmethod
    def join(self, ids: Sequence[int]) -> str:
        """The text of the ids, without ends."""

    def unknown_in(self, text: str) -> list[str]:
        """The unknown tokens of a text, each once."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The arguments of `units_of` that make it again."""
        return {"unit": self.unit}


class _Learnt(Units):
    """Ids in the order in which the tokens were first seen."""

    between = ""

    def __init__(self, names: Sequence[str] = (UNK, EOS)) -> None:
        self.names, self.index = list(names), {name: i for i, name in enumerate(names)}
        if len(self.index) < len(names) or not {UNK, EOS} <= self.index.keys():
            raise CheckpointError(f"these {len(names):,} {self.unit} are not all different, or lack {UNK} or {EOS}")
        self.unknown, self.end = self.index[UNK], self.index[EOS]

    @abstractmethod
    def parts(self, text: str) -> Sequence[str]: ...

    def ids(self, text: str, new: bool) -> TextOfIds:
        parts = self.parts(text)
        if new:
            more = [part for part in dict.fromkeys(parts) if part not in self.index]
            self.index.update(zip(more, range(len(self.names), len(self.names) + len(more)), strict=True))
            self.names += more
        return np.fromiter((self.index.get(part, self.unknown) for part in parts), np.uint32, len(parts))

    def unknown_in(self, text: str) -> list[str]:
        return [part for part in dict.fromkeys(self.parts(text)) if self.index.get(part, self.unknown) == self.unknown]

    def to_dict(self) -> dict[str, Any]:
        return {"unit": self.unit, "names": self.names}

    def join(self, ids: Sequence[int]) -> str:
        return self.between.join(self.names[i] for i in ids if i != self.end)


class Words(_Learnt):
    unit, whole, between = "words", False, " "

    def parts(self, text: str) -> Sequence[str]:
        return plain_words(text)


class Characters(_Learnt):
    unit, whole = "characters", True

    def parts(self, text: str) -> Sequence[str]:
        return text


class Bytes(Units):
    unit, whole, end = "bytes", True, 256

    def __init__(self) -> None:
        self.names = [*(f"{i:02x}" for i in range(256)), EOS]

    def ids(self, text: str, new: bool) -> TextOfIds:
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)

    def join(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i != self.end).decode("utf-8", errors="replace")


class Tokens(Units):
    """The tokens of a model by name, of a folder with a tokenizer, or of the tokenizer saved in `folder`."""

    unit, whole = "tokens", True

    def __init__(self, model: str, folder: Path | None = None) -> None:
        try:
            self.model, self.tokenizer = model, load_tokenizer(model if folder is None else folder)
        except CutawayError as error:
            raise InputError(f"unit={model!r} is neither words, characters nor bytes, nor a model: {error}") from None
        size, eos = self.tokenizer.vocab_size, self.tokenizer.eos_id
        self.names = [self.tokenizer.token(i) for i in range(size)]
        self.end, self.unknown = size if eos is None else eos, self.tokenizer.unk_id
        if eos is None:
            self.names.append(EOS)

    def ids(self, text: str, new: bool) -> TextOfIds:
        return next(self.all_ids([text], new))

    def all_ids(self, texts: list[str], new: bool) -> Iterator[TextOfIds]:
        return (np.array(ids, np.uint32) for ids in encoded(self.tokenizer, texts))

    def join(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode([i for i in ids if i != self.end])

    def unknown_in(self, text: str) -> list[str]:
        cut = self.tokenizer.encode_full(text, special=False)
        found = (text[slice(*place)] for id, place in zip(cut.ids, cut.offsets, strict=True) if id == self.unknown)
        return list(dict.fromkeys(found))

    def to_dict(self) -> dict[str, Any]:
        return {"unit": self.model}


def units_of(unit: str, names: Sequence[str] = (UNK, EOS), folder: Path | None = None) -> Units:
    """Words, characters, bytes, or the tokens of a model of this name. `names` are the known words or characters;
    `folder` is where the tokenizer was saved."""
    match unit:
        case "words":
            return Words(names)
        case "characters":
            return Characters(names)
        case "bytes":
            return Bytes()
    return Tokens(unit, folder)


@dataclass(frozen=True, eq=False)
class TextIds:
    """The ids of texts, each followed by an end. `whole` says whether they spell the texts exactly; it is checked for
    text that is scored, not for training text."""

    ids: TextOfIds
    texts: int
    n_bytes: int  # as UTF-8
    whole: bool

    def unknown(self, cut: Units) -> float:
        """The share of unknown tokens."""
        return 0.0 if cut.unknown is None else float((self.ids == cut.unknown).mean())


def read_ids(
    cut: Units,
    files: Sequence[Path],
    *,
    split: Split = "file",
    new: bool = True,
    progress: Progress = no_progress,
) -> TextIds:
    """Reads the texts of files; refuses one that is missing, empty or not a text."""
    total = max(sum(map(file_size, files)), 1)
    pieces, texts, n_bytes, whole = [], 0, 0, cut.whole
    read = text_pieces(files, split, lambda done: progress(done, total))
    for some in batched(read, lambda piece: len(piece.text)):
        for piece, found in zip(some, cut.all_ids([piece.text for piece in some], new), strict=True):
            pieces.append(found)
            n_bytes += len(piece.text.encode())
            whole = whole and (new or cut.join(found.tolist()) == piece.text)
            if piece.ends:
                pieces.append(np.array([cut.end], np.uint32))
                texts += 1
    ids = np.concatenate(pieces)
    if len(ids) == texts:
        raise InputError(f"{', '.join(map(str, files))}: no {cut.unit}")
    return TextIds(ids, texts, n_bytes, whole)


def text_pieces(
    files: Sequence[Path], split: Split = "file", heard: Callable[[int], None] = lambda done: None
) -> Iterator[TextPiece]:
    """The texts of files; a file with the character 0 is binary, even if it is valid UTF-8."""
    done = 0
    for path in files:

        def tell(place: int, total: int, before: int = done) -> None:
            heard(before + place)

        for piece in read_documents([path], split, progress=tell):
            if "\0" in piece.text:
                raise InputError(f"{path} is binary: it contains the character 0")
            yield piece
        done += file_size(path)
