"""How the API of OpenAI writes single tokens: as texts, or as bytes where a token is part of a character."""

import codecs

from cutaway.decoding.rules.token_bytes import pieces_of
from cutaway.tokens import Tokenizer


class TokenNames:
    """The texts of a vocabulary's tokens. Different tokens have different names, as far as their bytes differ."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = set(tokenizer.special_ids().values())

    def bytes_of(self, id: int, *, first: bool = False) -> bytes:
        """What a token adds to a text; of one that adds nothing, its name."""
        if id >= self.tokenizer.vocab_size:  # a vocabulary may be padded to a round number
            return f"<{id}>".encode()
        return pieces_of(self.tokenizer, not first).bytes[id] or self.tokenizer.token(id).encode()

    def name(self, id: int, *, first: bool = False) -> str:
        data = self.bytes_of(id, first=first)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class Offsets:
    """Where in a text its tokens begin, in characters, as they come; special tokens take no room."""

    def __init__(self, names: TokenNames) -> None:
        self.names, self.first, self.length = names, True, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, id: int) -> int:
        """The place of the next token."""
        start = self.length
        if id not in self.names.special and id < self.names.tokenizer.vocab_size:
            self.length += len(self._decoder.decode(self.names.bytes_of(id, first=self.first)))
            self.first = False
        return start
