"""Words that may not come: however a tokenizer spells them, the text never holds them.

    generate(model, tokenizer, "The", bad_words=["dog"])       # neither as one token nor as d + og

A token is hidden if it holds such a word, or completes one that the text ends with the beginning of.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch

from cutaway.decoding.rules.scores import BadWords, Rule, Scores, Text
from cutaway.decoding.rules.token_bytes import Pieces, pieces_of
from cutaway.decoding.search.search import NEVER
from cutaway.tokens import Tokenizer


@dataclass(frozen=True)
class NeverSpelled(Rule):
    """None of these words, also where the prompt begins one."""

    words: tuple[str, ...]
    tokenizer: Tokenizer = field(repr=False)
    option: ClassVar[str] = "bad_words"
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = 2

    def __call__(self, scores: Scores, text: Text) -> Scores:
        vocab = max(scores.shape[1], len(self._pieces.bytes))  # a tokenizer may know more than the model
        may_not = torch.zeros(len(scores), vocab, dtype=torch.bool)
        may_not[:, list(self.holding)] = True
        for row, known in enumerate(text.rows()):
            if known is not None:
                may_not[row, list(self._completing(self._tail([*known[0], *known[1]])))] = True
        return scores.masked_fill(may_not[:, : scores.shape[1]].to(scores.device), NEVER)

    @cached_property
    def holding(self) -> tuple[int, ...]:
        """The tokens that hold a word."""
        return tuple(id for id, piece in enumerate(self._pieces.bytes) if any(word in piece for word in self._bytes))

    @property
    def is_single(self) -> bool:
        """Whether no word can be begun by one token and completed by another: then `holding` is all that is hidden."""
        return not any(self._pieces.along(word[n:]) for word in self._bytes for n in range(1, len(word)))

    @property
    def _pieces(self) -> Pieces:
        return pieces_of(self.tokenizer, True)

    @cached_property
    def _bytes(self) -> tuple[bytes, ...]:
        return tuple(word.encode() for word in self.words)

    def _tail(self, ids: list[int]) -> bytes:
        """The end of a text, as long as a word can have been begun in it."""
        most, tail = max(map(len, self._bytes)) - 1, b""
        for id in reversed(ids):
            if len(tail) >= most:
                break
            tail = self._pieces.bytes[id] + tail if id < len(self._pieces.bytes) else tail
        return tail

    def _completing(self, tail: bytes) -> Iterator[int]:
        for word in self._bytes:
            for n in range(1, len(word)):
                if tail.endswith(word[:n]) and (node := self._pieces.along(word[n:])):
                    yield from node.below()


def bad_word_rules(words: tuple[str, ...], tokenizer: Tokenizer, vocab_size: int) -> list[Rule]:
    """A rule on tensors where it hides as much."""
    rule = NeverSpelled(words, tokenizer)
    if rule.is_single:
        ids = tuple((id,) for id in rule.holding if id < vocab_size)
        return [BadWords(ids)] if ids else []
    return [rule]
