"""Rules that name the tokens that may come next: by a function of the caller, or by an expression.

generate(model, tokenizer, "The", allow=lambda ids: [7, 8] if len(ids) < 9 else [2])
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutaway.decoding.rules.scores import Rule, Scores, Text
from cutaway.decoding.search.search import NEVER
from cutaway.errors import InputError


class Stuck(InputError):
    """No token may follow a text."""


def only(scores: Scores, text: Text, allowed: Callable[[list[int], list[int]], list[int] | Tensor]) -> Scores:
    """Hides all tokens but those that `allowed` names. Hypotheses that are stuck are lost; an error if all are."""
    may = torch.zeros(scores.shape, dtype=torch.bool)
    running, stuck = 0, []
    for row, known in enumerate(text.rows()):
        if known is not None:
            running += 1
            try:
                may[row, allowed(*known)] = True
            except Stuck as error:
                stuck.append(error)
    if stuck and len(stuck) == running:
        raise stuck[0]
    return scores.masked_fill(~may.to(scores.device), NEVER)


@dataclass(frozen=True)
class Allowed(Rule):
    """Only the tokens that `allow` names, given the ids of prompt and text. (De Cao et al. 2021)"""

    allow: Callable[[list[int]], Iterable[int]]
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if not callable(self.allow):
            raise InputError(f"allow={self.allow!r} is neither a regular expression nor a function of ids")

    def __str__(self) -> str:
        return f"allow={getattr(self.allow, '__name__', type(self.allow).__name__)}"

    def __call__(self, scores: Scores, text: Text) -> Scores:
        return only(scores, text, lambda prompt, new: self._ids([*prompt, *new], scores.shape[1]))

    def _ids(self, known: list[int], vocab: int) -> list[int]:
        ids = self.allow(known)
        ids = ids.tolist() if isinstance(ids, Tensor) else list(ids) if isinstance(ids, Iterable) else ids
        if not isinstance(ids, list) or not all(isinstance(id, int) for id in ids):
            raise InputError(f"{self} returned {ids!r}, which is not a list of token ids")
        if not ids:
            raise Stuck(f"{self} allows no token after {len(known)} tokens, the last of them {known[-3:]}")
        if not 0 <= min(ids) <= max(ids) < vocab:
            wrong = next(id for id in ids if not 0 <= id < vocab)
            raise InputError(f"{self} names token {wrong}, outside the vocabulary 0 … {vocab - 1}")
        return ids
