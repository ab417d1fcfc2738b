"""What all models of ids that look back share: p of every token that may come next, and texts drawn from that."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from cutaway.before.ngrams.counts import Ids
from cutaway.errors import CheckpointError


class Predictor(ABC):
    """A model of ids 0 … vocab_size − 1; `end` ends a text."""

    vocab_size: int
    end: int | None

    @abstractmethod
    def log_probabilities(self, ids: Ids) -> Float64[np.ndarray, " token"]:
        """ln p of each token given those before it; the first begins a text."""

    @abstractmethod
    def next_probabilities(self, past: Ids | Sequence[int]) -> Float64[np.ndarray, " vocab"]:
        """The probability of every token after a text, which may be empty."""

    def generate(
        self, start: Sequence[int] = (), *, seed: int = 0, limit: int = 100, never: int | None = None
    ) -> list[int]:
        """Continues `start` by at most `limit` sampled tokens, until a text ends; never by the token `never`, such as
        <unk>."""
        text, random = list(start), np.random.default_rng(seed)
        may = np.arange(self.vocab_size) != (-1 if never is None else never)
        while len(text) < len(start) + limit:
            p = self.next_probabilities(text) * may
            if not 0 < p.sum() < np.inf:
                raise CheckpointError(f"the {self} gives no token a probability here: its numbers are damaged")
            text.append(int(random.choice(self.vocab_size, p=p / p.sum())))
            if text[-1] == self.end:
                break
        return text
