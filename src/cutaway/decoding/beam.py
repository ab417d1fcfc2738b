"""Beam search: keep the few likeliest beginnings instead of one, because a likely text may begin with an unlikely word.

    score(y) = log p(y | x) / |y|^length_penalty        |y| counts the tokens that were written, the end included

Every text has `width` running beginnings. Each is continued by every token of the vocabulary; the likeliest `width` of
all that do not end run on, and those that end (among the likeliest `width` only) are kept aside, the best `width` of
them by score. (Attention Is All You Need, section 6.1; the rules, to the letter, are those of `transformers.generate`.)

When is a text done? At its limit, where what runs competes with what has ended, or as soon as `width` hypotheses have
ended and, by `early_stopping`,

    True      at once
    False     when the likeliest beginning, scored as if it ended now, is no better than the worst of them: a guess
    "never"   when it could not become better even if all that follows were certain: no guess

A beam of one is greedy decoding: it stops at the first end.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding.search import NEVER, Hypothesis, Search

EarlyStopping = bool | Literal["never"]


class BeamSearch(Search):
    """What runs and what has ended, for every row: tensors (row hypothesis …) that live on the model's device."""

    def __init__(
        self,
        width: int,
        *,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
        **room: Any,
    ) -> None:
        super().__init__(width, length_penalty=length_penalty, **room)
        self.early_stopping = True if width == 1 else early_stopping
        self.ended_tokens = torch.zeros_like(self.tokens)
        self.ended_scores = torch.full_like(self.scores, NEVER)
        self.ended_lengths = torch.zeros_like(self.tokens[:, :, 0])

    def enter(self, rows: slice, limits: Sequence[int]) -> None:
        super().enter(rows, limits)
        self.scores[rows, 1:] = NEVER  # all beams begin alike: one of them speaks for all
        self.ended_scores[rows] = NEVER

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        n, vocab = len(logits), logits.shape[2]
        log_p = self.ruled(logits.log_softmax(dim=-1, dtype=self.scores.dtype))
        # So many that `width` of them do not end, even if every beam's likeliest continuations are all the ends.
        n_candidates = min(max(2, 1 + len(self.ends)) * self.width, self.width * vocab)
        scores, index = (self.scores[:n, :, None] + log_p).flatten(1).topk(n_candidates)
        parent, token = index // vocab, index % vocab
        written = self.written[:n]
        tokens = _pick(self.tokens[:n], parent)
        tokens.scatter_(2, written[:, None, None].expand(-1, n_candidates, 1), token[:, :, None])
        written += 1
        at_limit = written >= self.limits[:n]
        ends = torch.isin(token, self.ends) | at_limit[:, None]
        going_on, chosen = scores.masked_fill(ends, NEVER).topk(self.width)
        self._keep(scores, tokens, ends)
        self.done[:n] |= at_limit | self._nothing_to_hope(going_on[:, 0])
        self.scores[:n] = going_on
        self.tokens[:n] = _pick(tokens, chosen)
        return parent.gather(1, chosen), token.gather(1, chosen)

    def _keep(
        self,
        scores: Float[Tensor, "row candidate"],
        tokens: Int[Tensor, "row candidate most"],
        ends: Bool[Tensor, "row candidate"],
    ) -> None:
        """Puts texts that end aside, the best by score, unless their row is done."""
        n = len(scores)
        ends = ends & ~self.done[:n, None]
        ends[:, self.width :] = False  # the other candidates are spares for those that run on
        lengths = self.written[:n, None].expand(ends.shape)
        scores = (scores / self._divisor(lengths)).masked_fill(~ends, NEVER)
        self.ended_scores[:n], best = torch.cat([self.ended_scores[:n], scores], dim=1).topk(self.width)
        self.ended_tokens[:n] = _pick(torch.cat([self.ended_tokens[:n], tokens], dim=1), best)
        self.ended_lengths[:n] = torch.cat([self.ended_lengths[:n], lengths], dim=1).gather(1, best)

    def _nothing_to_hope(self, likeliest: Float[Tensor, " row"]) -> Bool[Tensor, " row"]:
        """Whether what runs may be given up, by the rule of `early_stopping`."""
        n = len(likeliest)
        worst = self.ended_scores[:n, -1]
        full = worst > NEVER
        if self.early_stopping is True:
            return full | (likeliest == NEVER)
        length = self.written[:n]
        if self.early_stopping == "never" and self.length_penalty > 0:  # the longer, the milder
            length = self.limits[:n]
        return full & (likeliest / self._divisor(length) <= worst) | (likeliest == NEVER)

    def found(self, row: int) -> list[Hypothesis]:
        tokens, lengths, scores = (x[row].tolist() for x in (self.ended_tokens, self.ended_lengths, self.ended_scores))
        return [
            Hypothesis(ids[:n], score) for ids, n, score in zip(tokens, lengths, scores, strict=True) if score > NEVER
        ]


def _pick(tokens: Int[Tensor, "row some most"], which: Int[Tensor, "row others"]) -> Int[Tensor, "row others most"]:
    return tokens.gather(1, which[:, :, None].expand(-1, -1, tokens.shape[2]))
