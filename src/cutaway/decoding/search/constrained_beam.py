"""Beam search for texts that contain given terms: a beam for every number of tokens that are still owed.

A term may be written in several `Way`s (with a space before it or without). A hypothesis goes on freely, begins a way
of a term that is missing, or goes on with the way that it has begun. An unlikely term would soon be crowded out by
likelier texts without it, so that hypotheses compete only with those that owe as many tokens: grid beam search (Hokamp
& Liu 2017), whose banks all have the full width; Post & Vilar (2018) share one width among them, which is faster, and
narrow banks find less. Only what owes nothing may end. A term can be begun at once and, where a token can begin a word
behind any other, at any time: then some bank below is always filled, and a text with all terms is found.

Whole words: a term begins and ends at a border, where one token ends a word or the next one begins one.

Where does a term belong? A rare one is unlikely anywhere, and often cheapest as junk behind a sentence that is
complete: "Ein Hund läuft. Vierbeiner." So two things count in the choice besides log p. The cross-attention of a step
says which source words the next token comes from; a term that begins there pays by the share s of them that are its
own, `PRICE` · log s. And length earns nothing beyond `usual`, the length of the translation without terms, and
room for these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import NEVER, Job
from cutaway.model.kernels.live_rows import Packing

FREE = -1  # in no way: any token may come
WAY, AT, AT_BORDER, MUST_OPEN, N_STATE = range(5)  # must open: a term has just ended, in a token that could go on

PRICE, LEAST = 5.0, 1e-3  # of a share of attention that is smaller nothing more is known


@dataclass(frozen=True)
class Way:
    """One of the ways to write a term; some only at the very beginning of a text."""

    ids: tuple[int, ...]
    only_first: bool = False


@dataclass(frozen=True, kw_only=True)
class TermJob(Job):
    """A text that has to contain a way of each of these terms."""

    terms: tuple[tuple[Way, ...], ...]
    looks: tuple[tuple[int, ...], ...] = ()  # of each term: the places of its word in the source; none: anywhere
    usual: int = 1 << 30
    fresh: bool = True  # nothing is written yet: the prompt is but a start token

    @property
    def owed(self) -> int:
        return sum(longest(ways) for ways in self.terms)


@dataclass(frozen=True, eq=False)
class Borders:
    """Of each token: whether a word can end before it, whatever comes before, and behind it, whatever follows."""

    opens: Bool[Tensor, " vocab"]
    closes: Bool[Tensor, " vocab"]


@dataclass(frozen=True, eq=False)
class Moves:
    """What each hypothesis could do next."""

    scores: Float[Tensor, "row bank some"]
    parents: Int[Tensor, "row bank some"]
    tokens: Int[Tensor, "row bank some"]
    ways: Int[Tensor, "row bank some"]

    def pick(self, which: Int[Tensor, "row bank chosen"]) -> "Moves":
        return Moves(*(x.gather(2, which) for x in (self.scores, self.parents, self.tokens, self.ways)))


Pattern = Callable[[], Float[Tensor, "row hypothesis source"]]  # where each hypothesis looked in this step


class GridSearch(BeamSearch):
    """Bank b, hypotheses b · each … (b + 1) · each - 1, owes b tokens."""

    recordable = False

    def __init__(
        self, width: int, jobs: Sequence[TermJob], borders: Borders, pattern: Pattern | None = None, **options: Any
    ) -> None:
        self.banks = 1 + max(job.owed for job in jobs)
        super().__init__(width * self.banks, groups=self.banks, diversity=0.0, **options)
        self.borders, self.pattern = borders, pattern
        rows, device = len(self.done), self.done.device
        whole: dict[str, Any] = {"dtype": torch.long, "device": device}
        n_ways = max(sum(map(len, job.terms)) for job in jobs)
        most = max(len(way.ids) for job in jobs for ways in job.terms for way in ways)
        self.way_ids = torch.zeros(rows, n_ways, most, **whole)
        self.way_lengths = torch.zeros(rows, n_ways, **whole)  # 0 where there is none
        self.way_terms = torch.zeros(rows, n_ways, **whole)
        self.way_saves = torch.zeros(rows, n_ways, **whole)  # tokens that the longest way has more
        self.way_first = torch.zeros(rows, n_ways, dtype=torch.bool, device=device)
        source = max(len(job.source) for job in jobs)
        self.way_looks = torch.zeros(rows, n_ways, source, device=device)
        self.words = torch.zeros(rows, source, device=device)  # all but the end, where a step looks that knows nothing
        self.usual = torch.zeros(rows, **whole)
        self.fresh = torch.zeros(rows, dtype=torch.bool, device=device)
        # what each hypothesis has to know: in which way it is, how far, the two borders, and the terms that it has
        self.state = torch.zeros(rows, self.width, N_STATE + max(len(job.terms) for job in jobs), **whole)

    def enter(self, rows: slice, jobs: Sequence[Job]) -> None:
        super().enter(rows, jobs)
        self.scores[rows] = NEVER
        self.state[rows] = 0
        self.state[rows, :, WAY] = FREE
        self.way_lengths[rows] = 0
        self.way_looks[rows] = self.words[rows] = 0.0
        for row, job in enumerate(jobs, rows.start):
            assert isinstance(job, TermJob)
            self.scores[row, job.owed * self.each] = 0.0
            self.fresh[row], self.usual[row] = job.fresh, job.usual
            self.words[row, : len(job.source) - 1] = 1.0
            self.state[row, :, AT_BORDER] = job.fresh or bool(self.borders.closes[job.prompt[-1]])
            number = 0
            for term, ways in enumerate(job.terms):
                for way in ways:
                    length = len(way.ids)
                    self.way_ids[row, number, :length] = torch.tensor(way.ids)
                    self.way_lengths[row, number], self.way_terms[row, number] = length, term
                    self.way_saves[row, number] = longest(ways) - length
                    self.way_first[row, number] = way.only_first
                    self.way_looks[row, number, list(job.looks[term]) if job.looks else []] = 1.0
                    number += 1

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"], packing: Packing | None = None
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        n = len(logits)
        log_p = self.ruled(logits.log_softmax(dim=-1, dtype=self.scores.dtype))
        self.written[:n] += ~self.done[:n]
        self._once(n)
        moves = self._moves(log_p)
        tokens, state = self._after(moves)
        at_limit = self.written[:n] >= self.limits[:n]
        ends = torch.isin(moves.tokens, self.ends) | at_limit[:, None, None]
        paid = slice(0, self.each)
        self._keep(paid, moves.scores[:, 0], tokens[:, 0], ends[:, 0] & ~self.done[:n, None])
        going_on, chosen = moves.scores.masked_fill(ends, NEVER).topk(self.each)
        self.closed[:n] |= (at_limit | self._nothing_to_hope(paid, going_on.flatten(1)))[:, None]
        self.done[:n] |= self.closed[:n, 0]
        self.scores[:n] = going_on.flatten(1)
        self.tokens[:n], self.state[:n] = (_pick(x, chosen).flatten(1, 2) for x in (tokens, state))
        moves = moves.pick(chosen)
        return moves.parents.flatten(1), moves.tokens.flatten(1)

    def _divisor(self, lengths: Int[Tensor, "row *more"]) -> Float[Tensor, "row *more"]:
        usual = self.usual[: len(lengths)].view(-1, *[1] * (lengths.ndim - 1))
        return super()._divisor(lengths.minimum(usual))

    def _begin_price(self, n: int) -> Float[Tensor, "row hypothesis way"] | float:
        """What it costs to begin each way here, by what the step looked at."""
        if self.pattern is None:
            return 0.0
        looked = self.pattern().to(self.words.dtype)
        source = looked.shape[2]
        its = looked @ self.way_looks[:n, :, :source].mT
        share = its / (looked @ self.words[:n, :source, None]).clamp(min=LEAST)
        known = self.way_looks[:n].any(dim=2)[:, None]
        return torch.where(known, PRICE * share.clamp(LEAST, 1.0).log(), 0.0).to(self.scores.dtype)

    def _moves(self, log_p: Float[Tensor, "row hypothesis vocab"]) -> Moves:
        """The likeliest of each bank: free ones, and those that begin a term or go on with it."""
        n, width, vocab = log_p.shape
        n_candidates = max(2, 1 + len(self.ends)) * self.each
        way, at, at_border, must_open = self.state[:n, :, :N_STATE, None].unbind(2)
        in_way = way != FREE
        likeliest = log_p.masked_fill(in_way | (must_open.bool() & ~self.borders.opens), NEVER)
        likeliest[:, self.each :] = likeliest[:, self.each :].index_fill(2, self.ends, NEVER)
        worth, token = likeliest.topk(min(n_candidates, vocab))
        bank = torch.arange(self.banks, device=log_p.device)[:, None]
        place = torch.arange(width, device=log_p.device)[:, None]

        n_ways = self.way_lengths.shape[1]
        ids = self.way_ids[:n, None].expand(-1, width, -1, -1)
        forced = ids.gather(3, at.expand(-1, -1, n_ways)[..., None])[..., 0]
        number = torch.arange(n_ways, device=log_p.device)
        begins = self.state[:n, :, N_STATE:].gather(2, self.way_terms[:n, None].expand(-1, width, -1)) == 0
        begins &= at_border.bool() | self.borders.opens[forced]
        begins &= (~self.way_first[:n] | (self.fresh[:n] & (self.written[:n] == 1))[:, None])[:, None]
        may = torch.where(in_way, way == number, begins) & (self.way_lengths[:n] > 0)[:, None]
        owes = place // self.each - 1 - torch.where(in_way, 0, self.way_saves[:n, None])
        price = self.scores[:n, :, None] + log_p.gather(2, forced)
        price = (price + torch.where(in_way, 0.0, self._begin_price(n))).masked_fill(~may, NEVER)

        def beside(free: Tensor, of_ways: Tensor) -> Tensor:
            return torch.cat(
                [free.reshape(n, self.banks, -1), of_ways.flatten(1)[:, None].expand(-1, self.banks, -1)], 2
            )

        scores = beside(self.scores[:n, :, None] + worth, price)
        scores[:, :, -width * n_ways :].masked_fill_(owes.flatten(1)[:, None] != bank, NEVER)
        moves = Moves(
            scores,
            beside(place.expand_as(worth), place.expand_as(forced)),
            beside(token, forced),
            beside(torch.full_like(token, FREE), number.expand_as(forced)),
        )
        return moves.pick(scores.topk(min(n_candidates, scores.shape[2])).indices)

    def _after(self, moves: Moves) -> tuple[Int[Tensor, "row bank some most"], Int[Tensor, "row bank some state"]]:
        """The texts after these moves, and their states."""
        n, way = len(moves.scores), moves.ways.clamp(min=0)
        tokens, state = _pick(self.tokens[:n, None], moves.parents), _pick(self.state[:n, None], moves.parents)
        last = (self.written[:n] - 1).view(-1, 1, 1, 1).expand(*way.shape, 1)
        tokens.scatter_(3, last, moves.tokens[..., None])
        length, term = (x[:n].gather(1, way.flatten(1)).view_as(way) for x in (self.way_lengths, self.way_terms))
        at = state[..., AT] + 1
        ended, in_way = (moves.ways != FREE) & (at == length), (moves.ways != FREE) & (at < length)
        state[..., WAY] = torch.where(in_way, moves.ways, FREE)
        state[..., AT] = torch.where(in_way, at, 0)
        state[..., AT_BORDER] = self.borders.closes[moves.tokens].long()
        state[..., MUST_OPEN] = (ended & ~self.borders.closes[moves.tokens]).long()
        state[..., N_STATE:] |= one_hot(term, state.shape[3] - N_STATE) * ended[..., None]
        return tokens, state

    def _once(self, n: int) -> None:
        """Gives up what stands in a bank twice: of a term that was written twice, either was the one that was owed."""
        known = torch.cat([self.tokens[:n], self.state[:n]], dim=2).unflatten(1, (self.banks, self.each))
        same = (known[:, :, :, None] == known[:, :, None]).all(dim=-1)
        self.scores[:n].masked_fill_(same.tril(diagonal=-1).any(dim=-1).flatten(1), NEVER)


def longest(ways: Sequence[Way]) -> int:
    return max(len(way.ids) for way in ways)


def _pick(x: Tensor, which: Int[Tensor, "row bank some"]) -> Tensor:
    """Along the third axis."""
    x = x.expand(-1, which.shape[1], -1, -1)
    return x.gather(2, which[..., None].expand(-1, -1, -1, x.shape[3]))
