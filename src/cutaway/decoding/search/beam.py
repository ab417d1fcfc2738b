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

A beam finds variations of one text. Diverse beam search (Vijayakumar et al. 2016) cuts it into `groups`, each a beam of
its own, that choose one after another; a token costs a later group `diversity` for every hypothesis of an earlier one
that has just taken it. Here that price counts in the choice only: a score stays the log-probability of its text.

Most of a beam never catches up. `prune` gives up what has fallen further than that behind the best of its beam, running
or ended, in the sum of log p; a text is done, too, when nothing runs any more. (Freitag & Al-Onaizan 2017: relative
threshold pruning.) On a CPU whatever was given up is not computed any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding.search.search import NEVER, Hypothesis, Job, Search
from cutaway.decoding.search.topk import likeliest, top
from cutaway.model.kernels.live_rows import Packing

Offered = tuple[Float[Tensor, "row each k"], Int[Tensor, "row each k"]]  # what tokens are worth, and which


@dataclass(frozen=True, eq=False)
class Considered:
    """The candidates of one group in a step, the most likely first: see `BeamSearch.listener`."""

    group: int
    parents: Int[Tensor, "row candidate"]
    tokens: Int[Tensor, "row candidate"]
    scores: Float[Tensor, "row candidate"]  # the sum of all its tokens' log p
    ended: Bool[Tensor, "row candidate"]
    chosen: Int[Tensor, "row hypothesis"]  # the candidates that go on,
    going_on: Float[Tensor, "row hypothesis"]  # and their scores: none where too few can


class BeamSearch(Search):
    """The running and ended hypotheses of every row, as tensors (row hypothesis …) on the model's device."""

    told = ("tokens", "scores", "written", "ended_tokens", "ended_scores", "ended_lengths", "closed")

    def __init__(
        self,
        width: int,
        *,
        length_penalty: float = 1.0,
        early_stopping: bool | Literal["never"] = False,
        groups: int = 1,
        diversity: float = 0.5,
        prune: float | None = None,
        **room: Any,
    ) -> None:
        super().__init__(width, length_penalty=length_penalty, **room)
        self.groups, self.diversity, self.prune, self.each = groups, diversity, prune, width // groups
        self.early_stopping = True if self.each == 1 else early_stopping
        self.ended_tokens = torch.zeros_like(self.tokens)
        self.ended_scores = torch.full_like(self.scores, NEVER)
        self.ended_lengths = torch.zeros_like(self.tokens[:, :, 0])
        self.closed = self.done[:, None].repeat(1, groups)  # the groups that are done
        self.best_ended = torch.full_like(self.scores[:, :groups], NEVER)  # the largest sum of log p, for `prune`
        self.listener: Callable[[Considered], None] | None = None  # called after every step

    def enter(self, rows: slice, jobs: Sequence[Job]) -> None:
        super().enter(rows, jobs)
        self.scores[rows] = NEVER
        self.scores[rows, :: self.each] = 0.0  # all hypotheses of a group start equal, so only one counts
        self.ended_scores[rows] = self.best_ended[rows] = NEVER
        self.closed[rows] = False

    def living(self, n: int) -> Bool[Tensor, "row hypothesis"] | None:
        """Only with pruning: a whole beam computes the same bits watched or not."""
        return None if self.prune is None else self.scores[:n] != NEVER

    def advance(
        self, logits: Float[Tensor, "rows some vocab"], packing: Packing | None = None
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        """As for any search; with a packing, `logits` are (1, living, vocab)."""
        n = len(logits) if packing is None else len(packing.living)
        log_p = price = None
        if self.groups > 1 or any(self.rules[:n]):  # rules and prices need all scores
            log_p = logits.log_softmax(dim=-1, dtype=self.scores.dtype)
            log_p = self.ruled(log_p if packing is None else packing.spread(log_p[0]))
            price = torch.zeros_like(log_p[:, 0]) if self.groups > 1 else None
        self.written[:n] += ~self.done[:n]
        steps = []
        for group in range(self.groups):
            its = slice(group * self.each, (group + 1) * self.each)
            if log_p is None:
                offered = self._likeliest(logits, packing)
            else:
                worth = log_p[:, its] if price is None else log_p[:, its] - price[:, None]
                offered = top(worth, min(self.n_candidates, worth.shape[2]))
            steps.append(self._advance(group, its, offered, log_p, price))
        self.done[:n] |= self.closed[:n].all(dim=1)
        parents, tokens = (torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))
        return parents, tokens

    def _likeliest(self, logits: Float[Tensor, "rows some vocab"], packing: Packing | None) -> Offered:
        """The likeliest tokens of every hypothesis."""
        found = likeliest(logits, min(self.n_candidates, logits.shape[2]), self.scores.dtype)
        return found if packing is None else (packing.spread(found[0][0]), packing.spread(found[1][0]))

    @property
    def n_candidates(self) -> int:
        """Enough for a full beam, even if the most likely continuations of every hypothesis are all end tokens."""
        return max(2, 1 + len(self.ends)) * self.each

    def _advance(
        self,
        group: int,
        its: slice,
        offered: Offered,
        log_p: Float[Tensor, "row hypothesis vocab"] | None,
        price: Float[Tensor, "row vocab"] | None,
    ) -> tuple[Int[Tensor, "row each"], Int[Tensor, "row each"]]:
        """One group's step. The tokens that it takes cost later groups more."""
        worth, parent, token = self._candidates(its, *offered)
        n = len(worth)
        scores = worth
        if price is not None and log_p is not None:
            scores = self.scores[:n].gather(1, parent) + _at(log_p, parent, token)
        reach = self._reach(n)
        tokens = _pick(self.tokens[:n, :, :reach], parent)
        last = (self.written[:n] - 1)[:, None, None].expand(-1, token.shape[1], 1)
        tokens.scatter_(2, last, token[:, :, None])
        at_limit = self.written[:n] >= self.limits[:n]
        ends = torch.isin(token, self.ends) | at_limit[:, None]
        chosen = worth.masked_fill(ends, NEVER).topk(self.each).indices
        going_on = scores.masked_fill(ends, NEVER).gather(1, chosen)
        open_ = ~(self.closed[:n, group] | self.done[:n])
        ended = self._keep(its, scores, tokens, ends & open_[:, None])
        if self.prune is not None:
            going_on = self._pruned(group, going_on, scores.masked_fill(~ended, NEVER))
        self.closed[:n, group] |= at_limit | self._nothing_to_hope(its, going_on)
        self.scores[:n, its] = going_on
        self.tokens[:n, its, :reach] = _pick(tokens, chosen)
        if self.listener is not None:
            self.listener(Considered(group, parent, token, scores, ended, chosen, going_on))
        following = token.gather(1, chosen)
        if price is not None:
            taken = torch.where(at_limit[:, None], token[:, : self.each], following)
            alive = torch.where(at_limit[:, None], scores[:, : self.each], going_on) > NEVER
            price.scatter_add_(1, taken, self.diversity * (alive & open_[:, None]).to(price.dtype))
        return parent.gather(1, chosen), following

    def _reach(self, n: int) -> int:
        """The number of tokens so far; a GPU would have to wait for it, so there all slots are copied."""
        return self.most if self.written.is_cuda else int(self.written[:n].max())

    def _candidates(
        self, its: slice, worth: Float[Tensor, "row each k"], token: Int[Tensor, "row each k"]
    ) -> tuple[Float[Tensor, "row candidate"], Int[Tensor, "row candidate"], Int[Tensor, "row candidate"]]:
        """The most likely continuations of all hypotheses: their scores, what they continue, their tokens."""
        # first of each hypothesis, then of all: the vocabulary is read once
        n = min(self.n_candidates, token[0].numel())
        worth, index = (self.scores[: len(worth), its, None] + worth).flatten(1).topk(n)
        return worth, index // token.shape[2] + its.start, token.flatten(1).gather(1, index)

    def _pruned(
        self, group: int, going_on: Float[Tensor, "row each"], ended: Float[Tensor, "row candidate"]
    ) -> Float[Tensor, "row each"]:
        """Drops what is too far behind the best."""
        assert self.prune is not None
        best_ended = self.best_ended[: len(going_on), group]
        torch.maximum(best_ended, ended.amax(dim=1), out=best_ended)
        best = torch.maximum(best_ended, going_on.amax(dim=1))
        return going_on.masked_fill(going_on < best[:, None] - self.prune, NEVER)

    def _keep(
        self,
        its: slice,
        scores: Float[Tensor, "row candidate"],
        tokens: Int[Tensor, "row candidate reach"],
        ends: Bool[Tensor, "row candidate"],
    ) -> Bool[Tensor, "row candidate"]:
        """Keeps the best of the texts that end; returns which candidates were considered."""
        n = len(scores)
        ends = ends & (scores > NEVER)
        ends[:, self.each :] = False  # the other candidates are spares for those that run on
        lengths = self.written[:n, None].expand(ends.shape)
        scores = (scores / self._divisor(lengths)).masked_fill(~ends, NEVER)
        self.ended_scores[:n, its], best = torch.cat([self.ended_scores[:n, its], scores], dim=1).topk(self.each)
        ended = self.ended_tokens[:n, its, : tokens.shape[2]]
        ended.copy_(_pick(torch.cat([ended, tokens], dim=1), best))
        self.ended_lengths[:n, its] = torch.cat([self.ended_lengths[:n, its], lengths], dim=1).gather(1, best)
        return ends

    def _nothing_to_hope(self, its: slice, going_on: Float[Tensor, "row each"]) -> Bool[Tensor, " row"]:
        """Whether the running hypotheses may be dropped, by the rule of `early_stopping`."""
        n = len(going_on)
        likeliest, worst = going_on.amax(dim=1), self.ended_scores[:n, its.stop - 1]
        full = worst > NEVER
        if self.early_stopping is True:
            return full | (likeliest == NEVER)
        length = self.written[:n]
        if self.early_stopping == "never" and self.length_penalty > 0:  # the longer, the milder
            length = self.limits[:n]
        return full & (likeliest / self._divisor(length) <= worst) | (likeliest == NEVER)

    def found(self, row: int) -> list[Hypothesis]:
        """The best first, each text once. If a listener stopped the text, running hypotheses count, too."""
        kept = [(self.ended_tokens, self.ended_lengths, self.ended_scores)]
        if not self.closed[row].all():
            lengths = self.written[:, None].expand_as(self.scores)
            kept.append((self.tokens, lengths, self.scores / self._divisor(lengths)))
        found = (torch.cat([x[row] for x in parts]).tolist() for parts in zip(*kept, strict=True))
        best: dict[tuple[int, ...], float] = {}
        for ids, n, score in sorted(zip(*found, strict=True), key=lambda found: -found[2]):
            if score > NEVER:
                best.setdefault(tuple(ids[:n]), score)
        return [Hypothesis(list(ids), score) for ids, score in best.items()]


def _at(
    log_p: Float[Tensor, "row hypothesis vocab"], which: Int[Tensor, "row some"], token: Int[Tensor, "row some"]
) -> Float[Tensor, "row some"]:
    return log_p[torch.arange(len(log_p), device=log_p.device)[:, None], which, token]


def _pick(tokens: Int[Tensor, "row some most"], which: Int[Tensor, "row others"]) -> Int[Tensor, "row others most"]:
    return tokens.gather(1, which[:, :, None].expand(-1, -1, tokens.shape[2]))
