"""How the entries of a vocabulary are spelled: how they write a space, a byte, and the continuation of a word.

Ġapple     byte-level: each byte is one of 256 visible characters, the space is Ġ       GPT-2, RoBERTa
▁apple     SentencePiece: the space is ▁; <0xE2> is a byte                              Llama, T5
app ##le   WordPiece: ## continues a word                                               BERT
app le</w> BPE over words: </w> ends one                                                GPT
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

from cutaway.errors import InputError

SPACE = "▁"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Spelling:
    """How a tokenizer spells its entries."""

    model: str  # BPE, WordPiece, Unigram, WordLevel
    byte_level: bool
    prefix: str  # of an entry that continues a word
    suffix: str  # of an entry that ends a word


def spelling_of(description: Mapping[str, Any]) -> Spelling:
    """How a tokenizer.json spells its entries."""
    model = description["model"]
    steps = [*_steps(description["pre_tokenizer"]), *_steps(description["decoder"])]
    prefix, suffix = model.get("continuing_subword_prefix"), model.get("end_of_word_suffix")
    return Spelling(model["type"], "ByteLevel" in steps, prefix or "", suffix or "")


def description_of(backend: Backend) -> dict[str, Any]:
    """The contents of its tokenizer.json."""
    found: dict[str, Any] = json.loads(backend.to_str())
    return found


def _steps(node: Any) -> Iterator[str]:
    """The types of all steps of a pre-tokenizer or decoder, however nested."""
    if isinstance(node, dict):
        yield str(node.get("type"))
        for inner in node.values():
            yield from _steps(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _steps(inner)


def visible_bytes() -> list[str]:
    """The 256 characters that represent the bytes: the byte's own if it is visible, else the next one from Ā on."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = (chr(256 + n) for n in range(256 - len(seen)))
    return [chr(byte) if byte in seen else next(hidden) for byte in range(256)]


def continuing_ids(backend: Backend) -> set[int]:
    """The ids of the entries that continue a word, as far as an entry alone can tell.

    In WordPiece the prefix says so. In others, an entry that begins with a letter, a digit or an accent, and not with a
    space, is taken to continue a word. This is wrong for the first entry of a text and one right after punctuation
    (`"Hello` is taken for a continuation), and for punctuation inside a word (`don't` is taken for a beginning).
    """
    style = spelling_of(description_of(backend))
    if style.suffix:
        raise InputError(f"the entries say where a word ends ({style.suffix}), not which of them continue one")
    vocab = backend.get_vocab(with_added_tokens=True)
    if style.model == "WordLevel":
        return set()
    if style.prefix:
        return {id for token, id in vocab.items() if token.startswith(style.prefix)}
    byte_of = {visible: byte for byte, visible in enumerate(visible_bytes())} if style.byte_level else {}
    return {id for token, id in vocab.items() if _inside_a_word(token, byte_of)}


def _inside_a_word(token: str, byte_of: Mapping[str, int]) -> bool:
    first = token[:1]
    if found := BYTE.fullmatch(token):
        first = _first_character(bytes([int(found[1], 16)]))
    elif byte_of and all(character in byte_of for character in token):
        first = _first_character(bytes(byte_of[character] for character in token))
    return first.isalnum() or unicodedata.category(first or " ").startswith("M")


def _first_character(data: bytes) -> str:
    """The first character; for part of one a letter, as most characters of several bytes are."""
    for n in range(1, 5):
        with suppress(UnicodeDecodeError):
            return data[:n].decode()
    return "x"
