"""Rules that change the scores of the next token; −∞ means never.

    rules = (RepetitionPenalty(1.2), MinLength(5), Temperature(0.8), TopP(0.9))
    Job(prompt=ids, limit=100, rules=rules, seed=7)

They are applied one after another, so the order matters: `in_order` sorts them as `transformers` does, first those that
weight or forbid single tokens, then temperature, then those that cut off the tail. A rule gets the text so far, prompt
included (`Text`). Most rules compute with tensors, which a recorded CUDA graph can replay; one that calls Python code
for every text says so: `on_host`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from reprlib import repr as shorter
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding.search.search import NEVER
from cutaway.errors import InputError

Scores = Float[Tensor, "row vocab"]


@dataclass(frozen=True, eq=False)
class Text:
    """The texts so far: row i is ids[i, starts[i] : stops[i]], of which the tokens from `border` on are new."""

    prompts: Int[Tensor, "row prompt"]  # aligned on the right, so that new tokens follow
    tokens: Int[Tensor, "row most"]
    starts: Int[Tensor, " row"]
    written: Int[Tensor, " row"]
    ends: Int[Tensor, " end"]
    runs: Bool[Tensor, " row"]  # False in rows without a text, which are ignored

    @property
    def border(self) -> int:
        return self.prompts.shape[1]

    @cached_property
    def ids(self) -> Int[Tensor, "row place"]:
        return torch.cat([self.prompts, self.tokens], dim=1)

    @cached_property
    def stops(self) -> Int[Tensor, " row"]:
        return self.border + self.written

    def real(self, starts: Tensor | int) -> Bool[Tensor, "row place"]:
        """The places from `starts` on that hold a token."""
        place = torch.arange(self.ids.shape[1], device=self.ids.device)
        begun = place >= (starts if isinstance(starts, int) else starts[:, None])
        return begun & (place < self.stops[:, None])

    def last(self, n: int) -> Int[Tensor, "row n"]:
        """The last n tokens; arbitrary ones in front of a shorter text."""
        along = torch.arange(-n, 0, device=self.ids.device)
        return self.ids.gather(1, (self.stops[:, None] + along).clamp(min=0))

    def rows(self) -> list[tuple[list[int], list[int]] | None]:
        """Prompt and new tokens of each running text, copied to the host."""
        running, ids, starts, stops = (x.tolist() for x in (self.runs, self.ids, self.starts, self.stops))
        return [
            (row[start : self.border], row[self.border : stop]) if runs else None
            for runs, row, start, stop in zip(running, ids, starts, stops, strict=True)
        ]


@dataclass(frozen=True)
class Rule:
    """Rows with equal rules are computed together."""

    option: ClassVar[str] = ""  # the option of `generate` whose value is the first field
    on_host: ClassVar[bool] = False
    rank: ClassVar[int] = 0

    def __str__(self) -> str:
        """The option that made it."""
        if not self.option:
            return repr(self)
        value = getattr(self, fields(self)[0].name)
        return f"{self.option}={shorter(value) if isinstance(value, tuple) else repr(value)}"

    def __call__(self, scores: Scores, text: Text) -> Scores:
        raise NotImplementedError


def in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """In the order in which `transformers.generate` applies them."""
    return tuple(sorted(rules, key=lambda rule: rule.rank))


# --- sampling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Temperature(Rule):
    """score / temperature: below 1 likely tokens get more likely, above 1 less. (Ackley et al. 1985)"""

    temperature: float
    option: ClassVar[str] = "temperature"
    rank: ClassVar[int] = 5

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"temperature={self.temperature} is not a finite number above 0")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        if self.temperature < 1e-6:  # so that the largest does not overflow
            scores = scores - scores.amax(dim=-1, keepdim=True)
        return scores / self.temperature


@dataclass(frozen=True)
class TopK(Rule):
    """Only the k most likely tokens, and those that tie with the last of them. (Fan et al. 2018)"""

    k: int
    option: ClassVar[str] = "top_k"
    rank: ClassVar[int] = 6

    def __post_init__(self) -> None:
        _whole("top_k", self.k, 1)

    def __call__(self, scores: Scores, text: Text) -> Scores:
        worst = scores.topk(min(self.k, scores.shape[1])).values[:, -1:]
        return scores.masked_fill(scores < worst, NEVER)


@dataclass(frozen=True)
class TopP(Rule):
    """The fewest most likely tokens whose probabilities add up to p: nucleus sampling. (Holtzman et al. 2020)"""

    p: float
    option: ClassVar[str] = "top_p"
    rank: ClassVar[int] = 7

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise InputError(f"top_p={self.p} is not above 0 and at most 1")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        ascending, order = scores.sort(dim=-1)
        tail = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - self.p
        tail[:, -1] = False  # rounding must not remove the most likely token
        return scores.masked_fill(tail.scatter(1, order, tail), NEVER)


@dataclass(frozen=True)
class MinP(Rule):
    """Only tokens at least p times as likely as the most likely one. (Nguyen et al. 2024)"""

    p: float
    option: ClassVar[str] = "min_p"
    rank: ClassVar[int] = 8

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(f"min_p={self.p} is not between 0 and 1")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        probabilities = scores.softmax(dim=-1)
        return scores.masked_fill(probabilities < self.p * probabilities.amax(dim=-1, keepdim=True), NEVER)


# --- repetition --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RepetitionPenalty(Rule):
    """A token of prompt or text: score / penalty, or score · penalty where negative. (Keskar et al. 2019)"""

    penalty: float
    option: ClassVar[str] = "repetition_penalty"

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise InputError(f"repetition_penalty={self.penalty} is not a finite number above 0; 1 changes nothing")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        seen = _among(text.ids, text.real(text.starts), scores.shape[1])
        return torch.where(seen, torch.where(scores < 0, scores * self.penalty, scores / self.penalty), scores)


@dataclass(frozen=True)
class PresencePenalty(Rule):
    """A generated token: score − penalty, however often it occurs. (as in the OpenAI API)"""

    penalty: float
    option: ClassVar[str] = "presence_penalty"

    def __post_init__(self) -> None:
        if not float("-inf") < self.penalty < float("inf"):
            raise InputError(f"presence_penalty={self.penalty} is not a finite number")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        seen = _among(text.ids, text.real(text.border), scores.shape[1])
        return torch.where(seen, scores - self.penalty, scores)


@dataclass(frozen=True)
class FrequencyPenalty(Rule):
    """A generated token: score − penalty, each time that it occurs. (as in the OpenAI API)"""

    penalty: float
    option: ClassVar[str] = "frequency_penalty"

    def __post_init__(self) -> None:
        if not float("-inf") < self.penalty < float("inf"):
            raise InputError(f"frequency_penalty={self.penalty} is not a finite number")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        vocab = scores.shape[1]
        ids = text.ids.masked_fill(~text.real(text.border), vocab)  # the others are counted at an extra place
        times = scores.new_zeros(len(ids), vocab + 1).scatter_add_(1, ids, scores.new_ones(ids.shape))
        return scores - self.penalty * times[:, :vocab]


@dataclass(frozen=True)
class NoRepeat(Rule):
    """No sequence of n tokens occurs twice in prompt and text. (Paulus et al. 2018)"""

    n: int
    option: ClassVar[str] = "no_repeat_ngram"
    rank: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _whole("no_repeat_ngram", self.n, 1)

    def __call__(self, scores: Scores, text: Text) -> Scores:
        before, ids = self.n - 1, text.ids
        if before >= ids.shape[1]:
            return scores
        last, n_windows = text.last(before), ids.shape[1] - before
        same = text.real(text.starts)[:, before:] & text.real(text.starts)[:, :n_windows]
        for i in range(before):
            same &= ids[:, i : i + n_windows] == last[:, i : i + 1]
        return scores.masked_fill(_among(ids[:, before:], same, scores.shape[1]), NEVER)


@dataclass(frozen=True)
class BadWords(Rule):
    """None of these token sequences: the last token is hidden where the text ends with those before it."""

    words: tuple[tuple[int, ...], ...]
    option: ClassVar[str] = "bad_words"
    rank: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not self.words or not all(self.words):
            raise InputError("bad_words holds a word without tokens")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        for before in sorted({len(word) - 1 for word in self.words}):
            words = _constant(tuple(word for word in self.words if len(word) - 1 == before), scores.device)
            hit = (text.last(before)[:, None] == words[None, :, :-1]).all(dim=-1)
            hit &= (text.stops - text.starts >= before)[:, None]
            final = words[:, -1].expand(len(scores), -1)
            scores = scores.masked_fill(_among(final, hit, scores.shape[1]), NEVER)
        return scores


# --- single tokens ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogitBias(Rule):
    """score + bias, for tokens that have one: pairs of id and bias, ordered by id. (as in the OpenAI API)"""

    biases: tuple[tuple[int, float], ...]
    option: ClassVar[str] = "logit_bias"
    rank: ClassVar[int] = -1

    def __post_init__(self) -> None:
        if not self.biases or not all(float("-inf") < bias < float("inf") for _, bias in self.biases):
            raise InputError(f"logit_bias={self.biases} is not a list of ids, each with a finite number")

    def __call__(self, scores: Scores, text: Text) -> Scores:
        ids, biases = zip(*self.biases, strict=True)
        added = _constant(biases, scores.device, scores.dtype).expand(len(scores), -1)
        return scores.index_add(1, _constant(ids, scores.device), added)


# --- length ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MinLength(Rule):
    """No end token before n tokens."""

    n: int
    option: ClassVar[str] = "min_tokens"
    rank: ClassVar[int] = 3

    def __post_init__(self) -> None:
        _whole("min_tokens", self.n, 0)

    def __call__(self, scores: Scores, text: Text) -> Scores:
        return torch.where((text.written < self.n)[:, None], scores.index_fill(1, text.ends, NEVER), scores)


@dataclass(frozen=True)
class ExactLength(MinLength):
    """No end token before n tokens, and then only an end token: give the job a limit above n."""

    option: ClassVar[str] = ""

    def __call__(self, scores: Scores, text: Text) -> Scores:
        only_ends = torch.full_like(scores, NEVER).index_copy(1, text.ends, scores[:, text.ends])
        return torch.where((text.written >= self.n)[:, None], only_ends, super().__call__(scores, text))


# --- parts ----------------------------------------------------------------------------------------------------------


def _among(ids: Int[Tensor, "row some"], which: Bool[Tensor, "row some"], vocab: int) -> Bool[Tensor, "row vocab"]:
    """Which tokens of the vocabulary are among the ids, of those where `which` is true."""
    found = torch.zeros(len(ids), vocab + 1, dtype=torch.bool, device=ids.device)  # the others go to an extra place
    return found.scatter_(1, ids.masked_fill(~which, vocab), True)[:, :vocab]


@lru_cache(maxsize=256)
def _constant(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """A tensor that is copied to the device once: a recorded step cannot copy anything there."""
    return torch.tensor(values, device=device, dtype=dtype)


def _whole(name: str, n: object, least: int) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < least:
        raise InputError(f"{name}={n!r} is not a whole number of at least {least}")
