"""Small tokenizers, files and texts for the tests of this room."""

import gzip
import lzma
from functools import cache
from pathlib import Path

import jaxtyping
import tokenizers
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

from cutaway.errors import InputError
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

REFUSED = (
    InputError,
    jaxtyping.TypeCheckError,
)  # a word that we do not know: where types are checked, that comes first

WORDS = "the cat sat on the mat and it's not 1234 of them . , the\nother\n\nday  two   spaces\n   indented ' 漢字 naïve"
# letters, numbers, marks and every kind of white space that two programs could disagree about
CHARACTERS = "aabbcé漢1٣.,'!_ \n\n\t\r\f\v\x1c\x1f\x85\xa0\u2003\u2028\u3000\u200b\u0301"
# longer than a piece, since hypothesis prefers short ones
TEXTS = st.one_of(st.text(st.sampled_from(of), min_size=40, max_size=200) for of in ("ab1. \n\t", CHARACTERS))
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=30), min_size=1)


@cache
def bpe(vocab_size: int = 400) -> Tokenizer:
    """Byte-level BPE, cut as GPT-2's; white space merges as far as the words allow."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False
    )
    spaces = [a + b + c for a in "x \n" for b in " \n\t" for c in " \n\t"]
    backend.train_from_iterator([WORDS] * 4 + [f"x{space}" for space in spaces] * 4, trainer)
    return Tokenizer(backend, {"eos": "<end>"})


def bytes_only() -> Tokenizer:
    """One token for each byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return Tokenizer(backend)


def characters() -> Tokenizer:
    """One token for each character."""
    vocab = {character: i for i, character in enumerate(sorted(set(CHARACTERS + WORDS)))}
    vocab["?"] = len(vocab)
    return Tokenizer(tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="?")))


def wordpiece() -> Tokenizer:
    """Lower-case pieces of words, cut as BERT's."""
    pieces = [*"abcdefghijklmnopqrstuvwxyz0123456789.,'!_", "[UNK]"]
    pieces += [f"##{piece}" for piece in pieces] + ["the", "cat", "##at"]
    backend = tokenizers.Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend)


def words() -> Tokenizer:
    """One token for each word."""
    return train_tokenizer([WORDS, " ".join(CHARACTERS)], kind="word")


KINDS = {"word": words, "bpe": bpe, "bytes": bytes_only, "characters": characters, "wordpiece": wordpiece}


def write(path: Path, data: bytes | str) -> Path:
    """A file, packed as its name says."""
    data = data.encode() if isinstance(data, str) else data
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(data))
    return path
