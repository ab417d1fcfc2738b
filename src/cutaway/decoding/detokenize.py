"""Text from tokens as they come: never half a character, never part of a stop string.

A tokenizer spells whole texts. A token's own text depends on those before it (▁ is a space, but not at the very
beginning), and several may share one character. So what is new is the difference of two spellings, with some tokens of
context in front, and it waits while its last character is incomplete.

Tokens for single bytes (<0x0A>) are read here: a tokenizer spells a run of them only as a whole, and one byte that is
no character would take all others with it.
"""

import re
from collections.abc import Collection, Sequence
from copy import copy

from cutaway.tokens import Tokenizer

CONTEXT = 32  # tokens: more than enough for every kind of decoder
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
LOST = "\ufffd"  # for a byte that is no character


class Speller:
    """Turns the tokens of one text into text as they come; `said` is what can be shown so far."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], *, ends: Collection[int] = (), stops: Sequence[str] = ()
    ) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.silent = {*ends, *tokenizer.special_ids().values()}
        self.ids = list(prompt[-CONTEXT:])
        self.spelled = len(self.ids)
        self.heard = 0
        self.said, self.held = "", ""  # `held` may still become a stop string
        self.stopped = False
        self.open = bytearray()  # the bytes of a character that is not complete
        self.broken = False  # whether the bytes in a row, of which those are the last, hold some that are no character

    def hear(self, ids: Sequence[int]) -> bool:
        """Takes all new tokens so far; returns whether a stop string is complete, after `heard` tokens."""
        for id in ids[self.heard :]:
            if self.stopped:
                break
            # a vocabulary may be padded to a round number: those ids stand for nothing
            if id not in self.silent and id < self.tokenizer.vocab_size:
                self._take(id)
            self.heard += 1
        return self.stopped

    def close(self) -> str:
        """The whole text, when no more tokens will come."""
        self._lose(len(self.open))
        self._spell(sure=True)
        self.said, self.held = self.said + self.held, ""
        return self.said

    def copy(self) -> "Speller":
        """A copy with the same state."""
        other = copy(self)
        other.ids, other.open = self.ids.copy(), self.open.copy()
        return other

    def _take(self, id: int) -> None:
        byte = BYTE.fullmatch(self.tokenizer.token(id))
        if byte is None:
            self._lose(len(self.open))
            self.broken = False
            self.ids.append(id)
            self._spell()
            return
        if not self.open:
            self._spell(sure=True)
        self.ids.append(id)
        self.open.append(int(byte[1], 16))
        while self.open and not self.stopped:
            try:
                character = self.open.decode()
            except UnicodeDecodeError as error:
                if error.reason == "unexpected end of data":
                    return
                self._lose(error.end)
            else:
                self.open.clear()
                if self.broken:  # the tokenizer would spell nothing but errors
                    self.spelled = len(self.ids)
                    self._say(character)
                else:
                    self._spell(sure=True)

    def _lose(self, n: int) -> None:
        """The first n of the open bytes are no character."""
        if n:
            del self.open[:n]
            self.broken = True
            self.spelled = len(self.ids) - len(self.open)
            self._say(n * LOST)

    def _spell(self, *, sure: bool = False) -> None:
        """Decodes the new tokens; if the last character looks incomplete, only when `sure` that it stays so."""
        if self.stopped or self.spelled == len(self.ids):
            return
        context = max(0, self.spelled - CONTEXT)
        while context < self.spelled and self._goes_on(self.ids[context]):
            context += 1
        text = self.tokenizer.decode(self.ids[context:])
        if text.endswith(LOST) and not sure:
            return
        before = self.tokenizer.decode(self.ids[context : self.spelled])
        new = text[len(before) :] if text.startswith(before) else self.tokenizer.decode(self.ids[self.spelled :])
        self.spelled = len(self.ids)
        self._say(new)

    def _goes_on(self, id: int) -> bool:
        """Whether this is a byte inside a character, where decoding cannot begin."""
        byte = BYTE.fullmatch(self.tokenizer.token(id))
        return byte is not None and 0x80 <= int(byte[1], 16) < 0xC0

    def _say(self, text: str) -> None:
        if self.stopped:
            return
        self.held += text
        # the stop that is complete first, however many characters a token brings
        found = [(at + len(stop), at) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if found:
            self.said, self.held, self.stopped = self.said + self.held[: min(found)[1]], "", True
            return
        safe = len(self.held) - self._could_stop()
        self.said, self.held = self.said + self.held[:safe], self.held[safe:]

    def _could_stop(self) -> int:
        """The length of the longest suffix of the held text that may become a stop string."""
        most = len(self.held)
        lengths = (n for stop in self.stops for n in range(1, min(len(stop), most + 1)) if self.held.endswith(stop[:n]))
        return max(lengths, default=0)
