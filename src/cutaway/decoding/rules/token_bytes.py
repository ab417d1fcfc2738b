"""What each token of a vocabulary adds to a text, as bytes: a token may be part of a character.

    pieces_of(tokenizer, begun=True).bytes[id]        # b" dog", b"\\xc3": half of an ü

The pieces stand in a tree, byte by byte, so that all tokens that begin alike are tried at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from cutaway.tokens import Tokenizer
from cutaway.tokens.marks import BYTE, visible_bytes

LOST = "\ufffd"  # what a tokenizer spells where bytes are no character


@dataclass(slots=True)
class TokenTrie:
    """The tokens whose bytes end here, and what longer ones go on with."""

    ids: list[int] = field(default_factory=list)
    children: dict[int, "TokenTrie"] = field(default_factory=dict)

    def below(self) -> Iterator[int]:
        """All tokens that end here or go on from here."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield from node.ids
            waiting.extend(node.children.values())


class Pieces:
    """What each token adds to a text that has begun, or begins a text with; nothing where that is not known."""

    def __init__(self, tokenizer: Tokenizer, *, begun: bool) -> None:
        self.bytes = _ends_of_words(tokenizer) or _spelled(tokenizer, begun)

    @cached_property
    def root(self) -> TokenTrie:
        """The tree, which takes a moment to build."""
        root = TokenTrie()
        for id, piece in enumerate(self.bytes):
            if piece:
                node = root
                for byte in piece:
                    if byte not in node.children:
                        node.children[byte] = TokenTrie()
                    node = node.children[byte]
                node.ids.append(id)
        return root

    def along(self, piece: bytes) -> TokenTrie | None:
        """The node at the end of some bytes."""
        node: TokenTrie | None = self.root
        for byte in piece:
            if node is None:
                return None
            node = node.children.get(byte)
        return node

    @cached_property
    def joined(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """The bytes of all tokens, one after another; where each token begins, and how long it is."""
        lengths = np.array([len(piece) for piece in self.bytes], dtype=np.int64)
        return np.frombuffer(b"".join(self.bytes), dtype=np.uint8), np.cumsum(lengths) - lengths, lengths

    @cached_property
    def characters(self) -> list[int]:
        """The characters that a token stands for, in order."""
        texts = (piece.decode(errors="ignore") for piece in self.bytes if len(piece) <= 4)
        return sorted({ord(text) for text in texts if len(text) == 1})

    @cached_property
    def spells_all(self) -> bool:
        """Whether there is a token for every byte that a character may have."""
        singles = {byte for byte, node in self.root.children.items() if node.ids}
        return singles.issuperset({*range(0xC0), *range(0xC2, 0xF5)})


@lru_cache(maxsize=8)
def pieces_of(tokenizer: Tokenizer, begun: bool) -> Pieces:
    return Pieces(tokenizer, begun=begun)


def marks_ends_of_words(tokenizer: Tokenizer) -> bool:
    """Whether a token's text depends on the next one: `dog</w>` is followed by a space unless it is the last."""
    return type(tokenizer.backend.decoder).__name__ == "BPEDecoder"


def _ends_of_words(tokenizer: Tokenizer) -> list[bytes]:
    if not marks_ends_of_words(tokenizer):
        return []
    suffix, special = tokenizer.backend.decoder.suffix, set(tokenizer.special_ids().values())
    tokens = (tokenizer.backend.id_to_token(id) or "" for id in range(tokenizer.vocab_size))
    return [b"" if id in special else token.replace(suffix, " ").encode() for id, token in enumerate(tokens)]


def _spelled(tokenizer: Tokenizer, begun: bool) -> list[bytes]:
    anchor = tokenizer.encode("a", special=False)[-1:] if begun else []
    skip = len(tokenizer.decode(anchor))
    texts = tokenizer.backend.decode_batch([[*anchor, id] for id in range(tokenizer.vocab_size)])
    byte_of = {visible: byte for byte, visible in enumerate(visible_bytes())}
    return [
        _bytes(tokenizer.backend.id_to_token(id) or "", byte_of) if LOST in text else text[skip:].encode()
        for id, text in enumerate(texts)
    ]


def _bytes(token: str, byte_of: dict[str, int]) -> bytes:
    """Of a token that is no whole character."""
    if found := BYTE.fullmatch(token):
        return bytes([int(found[1], 16)])
    return bytes(byte_of[char] for char in token) if all(char in byte_of for char in token) else b""
