"""Text from tokens as they come: never half a character, never part of a stop string.

A tokenizer spells whole texts. A token's own text depends on those before it (▁ is a space, but not at the very
beginning), and several may share one character. So what is new is the difference of two spellings, with some tokens of
context in front, and it waits while its last character is incomplete.
"""

import re
from collections.abc import Collection, Sequence

from cutaway.tokens import Tokenizer

CONTEXT = 32  # tokens: more than enough for every kind of decoder
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # tokens that are spelled together, as characters, or as nothing but errors


class Speller:
    """Hears the tokens of one text behind its prompt; `said` is what can be shown of it so far."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], *, ends: Collection[int] = (), stops: Sequence[str] = ()
    ) -> None:
        self.tokenizer, self.ends, self.stops = tokenizer, ends, stops
        self.ids = list(prompt[-CONTEXT:])
        self.spelled = len(self.ids)
        self.heard = 0
        self.said, self.held = "", ""  # the rest may yet become a stop string
        self.stopped = False

    def hear(self, ids: Sequence[int]) -> bool:
        """All that is written by now; whether that is enough."""
        for id in ids[self.heard :]:
            # a model's vocabulary may be padded to a round number: those places stand for nothing
            if not self.stopped and id not in self.ends and id < self.tokenizer.vocab_size:
                self.ids.append(id)
                if not BYTE.fullmatch(self.tokenizer.token(id)):
                    self._spell()
        self.heard = len(ids)
        return self.stopped

    def close(self) -> str:
        """Nothing more will come: the whole text."""
        if not self.stopped:
            self._spell(whole=True)
        return self.said

    def _spell(self, *, whole: bool = False) -> None:
        context = max(0, self.spelled - CONTEXT)
        text = self.tokenizer.decode(self.ids[context:])
        if text.endswith("\ufffd") and not whole:
            return
        before = self.tokenizer.decode(self.ids[context : self.spelled])
        if text.startswith(before):
            self.held += text[len(before) :]
        else:  # bytes that spoil those at the end of the prompt
            self.held += self.tokenizer.decode(self.ids[self.spelled :])
        self.spelled = len(self.ids)
        # the stop that is complete first, however many characters a token brings
        found = [(at + len(stop), at) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if found:
            self.said, self.held, self.stopped = self.said + self.held[: min(found)[1]], "", True
            return
        safe = len(self.held) if whole else len(self.held) - self._could_stop()
        self.said, self.held = self.said + self.held[:safe], self.held[safe:]

    def _could_stop(self) -> int:
        """The length of the longest end of what is held that a stop string begins with."""
        most = len(self.held)
        lengths = (n for stop in self.stops for n in range(1, min(len(stop), most + 1)) if self.held.endswith(stop[:n]))
        return max(lengths, default=0)
