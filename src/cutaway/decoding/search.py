"""What the engine asks after each step: of all that could come next, what does?

A search keeps, for every row of the engine, the texts that are being written. All of it is tensors that are allocated
once and changed in place, so that a captured CUDA graph can replay a step. `GreedySearch` takes the likeliest token;
`Sampling` draws one; `BeamSearch` follows several hypotheses at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

NEVER = float("-inf")  # the score of a place where no text stands


@dataclass(frozen=True)
class Hypothesis:
    """A text that was found, with the end token that closed it, if one did."""

    ids: list[int]
    score: float


class Search:
    """`width` hypotheses in each row, what they have written, and their scores: the sum of their tokens' log p."""

    def __init__(
        self,
        width: int,
        *,
        rows: int,
        most: int,
        ends: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        length_penalty: float = 1.0,
    ) -> None:
        self.width, self.most, self.length_penalty = width, most, length_penalty
        self.ends = torch.tensor(list(ends), dtype=torch.long, device=device)
        self.tokens = torch.zeros(rows, width, most, dtype=torch.long, device=device)
        self.scores = torch.zeros(rows, width, dtype=dtype, device=device)
        self.written = torch.zeros(rows, dtype=torch.long, device=device)
        self.limits = torch.ones(rows, dtype=torch.long, device=device)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.rules: Callable[[Tensor], Tensor] | None = None

    def enter(self, rows: slice, limits: Sequence[int]) -> None:
        """New texts begin in these rows."""
        self.scores[rows] = 0.0
        self.written[rows] = 0
        self.limits[rows] = torch.tensor(limits, device=self.limits.device)
        self.done[rows] = False

    def move(self, row: int, to: int) -> None:
        """What stands in one row goes on in another."""
        for tensor in vars(self).values():
            if isinstance(tensor, Tensor) and tensor is not self.ends:
                tensor[to] = tensor[row]

    def _divisor(self, lengths: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """Of the scores of texts of these lengths: long texts would lose, as every token takes some away."""
        return lengths.to(self.scores.dtype) ** self.length_penalty

    def ruled(self, scores: Float[Tensor, "row hypothesis vocab"]) -> Float[Tensor, "row hypothesis vocab"]:
        return scores if self.rules is None else self.rules(scores)

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        """Writes one more token. Which hypothesis each goes on from, and the token that it has to read next."""
        raise NotImplementedError

    def found(self, row: int) -> list[Hypothesis]:
        """What was written in a row that is done, the best first."""
        raise NotImplementedError


class GreedySearch(Search):
    """The likeliest token, again and again, until a text ends."""

    def __init__(self, **room: Any) -> None:
        super().__init__(1, **room)
        self.alone = torch.zeros_like(self.tokens[:, :, 0])

    def choose(self, scores: Float[Tensor, "row vocab"]) -> Int[Tensor, " row"]:
        return scores.argmax(dim=-1)

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        n = len(logits)
        scores = self.ruled(logits)[:, 0].to(self.scores.dtype)
        token = self.choose(scores)[:, None]
        log_p = scores.gather(1, token) - scores.logsumexp(dim=-1, keepdim=True)
        running = ~self.done[:n]
        written = self.written[:n]
        # a row that is done writes on behind its text, where nobody looks; at its limit, over its last place
        self.tokens[:n, 0].scatter_(1, written.clamp(max=self.tokens.shape[2] - 1)[:, None], token)
        self.scores[:n] += log_p * running[:, None]
        written += running
        self.done[:n] |= torch.isin(token[:, 0], self.ends) | (written >= self.limits[:n])
        return self.alone[:n], token

    def found(self, row: int) -> list[Hypothesis]:
        n = int(self.written[row])
        return [Hypothesis(self.tokens[row, 0, :n].tolist(), float(self.scores[row, 0]) / n**self.length_penalty)]
