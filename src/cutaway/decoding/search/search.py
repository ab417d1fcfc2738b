"""Chooses the next tokens after each step of the engine.

A search holds the texts of every row of the engine, in tensors that are allocated once and changed in place, so that a
recorded CUDA graph can replay a step. `GreedySearch` takes the most likely token; `Sampling` draws one; `BeamSearch`
follows several hypotheses at once.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite, log10
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding.search.topk import topk
from cutaway.errors import CutawayError, InputError

if TYPE_CHECKING:
    from cutaway.decoding.rules.scores import Rule

NEVER = float("-inf")  # the score of a token that may not come next, and of a row without a text
DIGITS = 30  # of the divisor of a score at most, so that the quotient is a float32, too
HAS_TRITON = find_spec("triton") is not None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One text to generate after `prompt` (of a translation: the start token, and a prefix if there is one)."""

    prompt: Sequence[int]
    limit: int  # new tokens at most
    source: Sequence[int] = ()  # what the encoder reads
    rules: "tuple[Rule, ...]" = ()  # applied to the scores, one after another
    seed: int | None = None  # of sampling; without one, the most likely token is taken
    hear: Callable[[list[int]], bool] | None = None  # called after every step with the new tokens; True ends the text


@dataclass(frozen=True)
class Hypothesis:
    """A text that was found, with its end token if it has one."""

    ids: list[int]
    score: float


class NoNumbers(CutawayError):
    """The model's scores are not finite; the engine, which knows the model, says why."""


class Search:
    """`width` hypotheses in each row: their tokens, and their scores, the sum of their tokens' log p.

    These are the model's own log p, before the rules; in a beam penalties count, too (as in transformers).
    """

    recordable = True  # a step needs nothing from the host, except for some rules
    told: ClassVar[tuple[str, ...]] = ("tokens", "scores", "written")  # what `found` reads

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
        prompt: int = 1,
    ) -> None:
        if not isfinite(length_penalty):
            raise InputError(f"length_penalty={length_penalty} is not a finite number")
        if abs(length_penalty) * log10(most) > DIGITS:
            raise InputError(
                f"length_penalty={length_penalty} makes numbers of {most} tokens that no float32 holds: 1 is the mean "
                "log p of a token, 0 the sum"
            )
        self.width, self.most, self.length_penalty = width, most, length_penalty
        self.ends = torch.tensor(list(ends), dtype=torch.long, device=device)
        self.tokens = torch.zeros(rows, width, most, dtype=torch.long, device=device)
        self.scores = torch.zeros(rows, width, dtype=dtype, device=device)
        self.written = torch.zeros(rows, dtype=torch.long, device=device)
        self.limits = torch.ones(rows, dtype=torch.long, device=device)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.prompts = torch.zeros(rows, prompt, dtype=torch.long, device=device)  # aligned on the right
        self.starts = torch.zeros(rows, dtype=torch.long, device=device)
        self.rules: list[tuple[Rule, ...]] = [()] * rows
        self.listeners: list[Callable[[list[int]], bool] | None] = [None] * rows
        self._broken: dict[tuple[Rule, ...], CutawayError] = {}  # the errors of rules
        self._grouped: tuple[tuple[Rule, ...], ...] = ()
        self._groups: list[tuple[tuple[Rule, ...], Int[Tensor, " some"] | None]] = []

    def enter(self, rows: slice, jobs: Sequence[Job]) -> None:
        """Starts new texts in these rows."""
        self.rules[rows] = [job.rules for job in jobs]
        self.listeners[rows] = [job.hear for job in jobs]
        if any(self.rules[rows]):
            self._remember(rows, [list(job.prompt) for job in jobs])
        self.scores[rows] = 0.0
        self.written[rows] = 0
        self.limits[rows] = torch.tensor([job.limit for job in jobs], device=self.limits.device)
        self.done[rows] = False

    def move(self, rows: Sequence[int], to: Sequence[int]) -> None:
        """Moves the texts of these rows to others."""
        which, where = (torch.tensor(some, device=self.done.device) for some in (rows, to))
        for _, tensor in self._tensors():
            if tensor is not self.ends:
                tensor.index_copy_(0, where, tensor.index_select(0, which))
        move_up(self.rules, rows, to)
        move_up(self.listeners, rows, to)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name, tensor in vars(self).items() if isinstance(tensor, Tensor)]

    def _divisor(self, lengths: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """What the scores of texts of these lengths are divided by, since every token makes a sum of log p smaller."""
        return lengths.to(self.scores.dtype) ** self.length_penalty

    def ruled(self, scores: Float[Tensor, "row hypothesis vocab"]) -> Float[Tensor, "row hypothesis vocab"]:
        """The scores after the rules of each row; rows with equal rules are computed together."""
        n = len(scores)
        if (rules := tuple(self.rules[:n])) != self._grouped:
            self._regroup(rules)
        for its, rows in self._groups:
            if rows is None:
                scores = self._apply(its, scores, slice(n))
            else:
                scores = scores.index_copy(0, rows, self._apply(its, scores[rows], rows))
        return scores

    def _regroup(self, rules: "tuple[tuple[Rule, ...], ...]") -> None:
        """Groups rows by their rules; called only when texts enter, leave or move."""
        rows: dict[tuple[Rule, ...], list[int]] = {}
        for row, its in enumerate(rules):
            rows.setdefault(its, []).append(row)
        self._grouped = rules
        self._broken = {its: error for its, error in self._broken.items() if its in rows}
        self._groups = [
            (its, None if len(rows) == 1 else torch.tensor(where, device=self.ends.device))
            for its, where in rows.items()
            if its
        ]

    def _apply(
        self, rules: "tuple[Rule, ...]", scores: Float[Tensor, "some hypothesis vocab"], rows: slice | Tensor
    ) -> Float[Tensor, "some hypothesis vocab"]:
        from cutaway.decoding.rules.scores import Text

        text = Text(
            prompts=self.prompts[rows].repeat_interleave(self.width, dim=0),
            tokens=self.tokens[rows].flatten(0, 1),
            starts=self.starts[rows].repeat_interleave(self.width),
            written=self.written[rows].repeat_interleave(self.width),
            ends=self.ends,
            runs=((self.scores[rows] > NEVER) & ~self.done[rows, None]).flatten(),
        )
        flat = scores.flatten(0, 1)
        try:
            for rule in rules:
                flat = rule(flat, text)
        except CutawayError as error:  # ends the texts that have these rules, not the others
            self._broken[rules] = error
            flat = torch.full_like(flat, NEVER)
        return flat.view_as(scores)

    def _remember(self, rows: slice, prompts: Sequence[list[int]]) -> None:
        """Keeps the prompts for the rules."""
        room, longest = self.prompts.shape[1], max(map(len, prompts))
        if longest > room:
            raise InputError(f"the rules need a prompt of {longest} tokens: create the search with prompt={longest}")
        self.prompts[rows] = torch.tensor([[0] * (room - len(ids)) + ids for ids in prompts], device=self.ends.device)
        self.starts[rows] = torch.tensor([room - len(ids) for ids in prompts], device=self.ends.device)

    def tell(self, n: int) -> None:
        """Calls the listeners of these rows; a text is done when its listener returns True."""
        if not any(self.listeners[:n]):
            return
        tokens, written = self.tokens[:n, 0].tolist(), self.written[:n].tolist()
        for row, hear in enumerate(self.listeners[:n]):
            if hear is not None and hear(tokens[row][: written[row]]):
                self.done[row] = True

    def living(self, n: int) -> Bool[Tensor, "row hypothesis"] | None:
        """Which hypotheses of the first n rows the model still has to read; None if all."""
        return None

    def leaving(self, rows: Sequence[int]) -> list[list[Hypothesis] | CutawayError]:
        """The hypotheses of rows that are done, copied from a GPU all at once; in place of a row's, its error."""
        there = self
        if self.done.is_cuda:
            there = copy(self)
            vars(there).update({name: tensor.cpu() for name, tensor in self._tensors() if name in self.told})
        return [there._leaving(row) for row in rows]

    def _leaving(self, row: int) -> list[Hypothesis] | CutawayError:
        """The best first. It is an error if the rules have left none."""
        found = [hypothesis for hypothesis in self.found(row) if isfinite(hypothesis.score)]
        if error := self._broken.get(self.rules[row]):
            return error
        if found:
            return found
        names = ", ".join(map(str, self.rules[row]))
        if not names or bool(self.scores[row].isnan().any()):
            return NoNumbers()
        return InputError(
            f"after {int(self.written[row]) - 1} tokens no token is allowed by the rules {names}: loosen them"
        )

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        """Appends a token to each hypothesis. Returns which hypothesis each continues, and the token to read next."""
        raise NotImplementedError

    def found(self, row: int) -> list[Hypothesis]:
        """The hypotheses of a row that is done, the best first."""
        raise NotImplementedError


def gaps(n: int, gone: Sequence[int]) -> tuple[list[int], list[int]]:
    """When some of n rows are gone, the last rows take their places: which rows move, and where to."""
    left = n - len(gone)
    return [row for row in range(left, n) if row not in gone], [row for row in gone if row < left]


def move_up(kept: list[Any], rows: Sequence[int], to: Sequence[int]) -> None:
    for row, place in zip(rows, to, strict=True):
        kept[place] = kept[row]


class GreedySearch(Search):
    """Takes the most likely token until the text ends."""

    def __init__(self, **room: Any) -> None:
        super().__init__(1, **room)
        self.alone = torch.zeros_like(self.tokens[:, :, 0])

    def choose(self, scores: Float[Tensor, "row vocab"]) -> Int[Tensor, " row"]:
        return topk(scores)

    def advance(
        self, logits: Float[Tensor, "row hypothesis vocab"]
    ) -> tuple[Int[Tensor, "row hypothesis"], Int[Tensor, "row hypothesis"]]:
        n = len(logits)
        if self._plain(logits):
            from cutaway.decoding.engine.greedy_triton import take_likeliest

            state = (self.tokens[:n], self.scores[:n], self.written[:n], self.limits[:n], self.done[:n])
            return self.alone[:n], take_likeliest(logits[:, 0], self.ends, *state)[:, None]
        said = logits.to(self.scores.dtype)
        scores = self.ruled(said)[:, 0]
        token = self.choose(scores)[:, None]
        log_p = said[:, 0].log_softmax(dim=-1).gather(1, token)  # the model's own, whatever the rules
        log_p = torch.where(scores.gather(1, token) == NEVER, NEVER, log_p)
        running = ~self.done[:n]
        written = self.written[:n]
        place = written.clamp(max=self.tokens.shape[2] - 1)[:, None]
        kept = self.tokens[:n, 0].gather(1, place)  # a row that is done does not change, even in a step
        self.tokens[:n, 0].scatter_(1, place, torch.where(running[:, None], token, kept))
        self.scores[:n] += torch.where(running[:, None], log_p, 0.0)
        written += running
        self.done[:n] |= torch.isin(token[:, 0], self.ends) | (written >= self.limits[:n]) | (log_p[:, 0] == NEVER)
        return self.alone[:n], token

    def _plain(self, logits: Float[Tensor, "row hypothesis vocab"]) -> bool:
        """Whether one kernel can do the whole step: on a GPU, without rules and without sampling."""
        return (
            logits.is_cuda
            and HAS_TRITON
            and type(self) is GreedySearch
            and self.scores.dtype is torch.float32
            and not any(self.rules[: len(logits)])
        )

    def found(self, row: int) -> list[Hypothesis]:
        n = int(self.written[row])
        return [Hypothesis(self.tokens[row, 0, :n].tolist(), float(self.scores[row, 0]) / n**self.length_penalty)]
