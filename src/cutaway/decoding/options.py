"""How texts are to be written: what may be wished, and the rules that it makes. `generate` says what each means."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from cutaway.arguments import LARGEST
from cutaway.decoding.rules.allowed import Allowed
from cutaway.decoding.rules.bad_words import bad_word_rules
from cutaway.decoding.rules.regex import Matching
from cutaway.decoding.rules.scores import (
    BadWords,
    MinLength,
    MinP,
    NoRepeat,
    PresencePenalty,
    RepetitionPenalty,
    Rule,
    Temperature,
    TopK,
    TopP,
    in_order,
)
from cutaway.decoding.rules.stop_strings import Stopping
from cutaway.decoding.search.beam import check_many, check_prune
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

Allow = str | Callable[[list[int]], Iterable[int]]


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """How texts are to be written; `generate` says what each means."""

    max_tokens: int = 100
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    no_repeat_ngram: int | None = None
    bad_words: Sequence[str | Sequence[int]] = ()
    min_tokens: int = 0
    allow: Allow | None = None
    rules: Sequence[Rule] = ()
    stop: str | Sequence[str] = ()
    beam: int = 1
    n_best: int = 1
    groups: int = 1
    diversity: float | None = None
    prune: float | None = None
    seed: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("beam", 1), ("n_best", 1), ("groups", 1), ("min_tokens", 0)):
            n = getattr(self, name)
            if not is_whole(n) or n < least:
                raise InputError(f"{name}={n!r} is not a whole number of at least {least}")
        for name in ("beam", "n_best"):
            check_many(name, getattr(self, name))
        self._check_numbers()
        if self.min_tokens > self.max_tokens:
            raise InputError(f"min_tokens={self.min_tokens} are more than max_tokens={self.max_tokens}")
        if self.beam > 1 and self.temperature > 0:
            raise InputError(f"beam={self.beam} keeps the likeliest, temperature={self.temperature} draws: choose one")
        if self.n_best > self.beam and self.temperature == 0:
            raise InputError(f"n_best={self.n_best} needs beam={self.n_best}, or a temperature above 0 to draw as many")
        if self.beam % self.groups:
            raise InputError(f"groups={self.groups} do not share beam={self.beam} evenly: make one a multiple")
        if self.diversity is not None and self.groups == 1:
            raise InputError(f"diversity={self.diversity} is a price between groups, and there is one: give groups too")
        check_prune(self.prune)
        if self.prune is not None and self.beam == 1:
            raise InputError(f"prune={self.prune} gives up hypotheses of a beam, and there is one: give a beam too")
        self._check_drawing()
        for name in ("stop", "bad_words", "rules"):
            if not isinstance(getattr(self, name), Sequence):
                raise InputError(f"{name}={getattr(self, name)!r} is not a list")
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                raise InputError(f"stop={stop!r} is not a text of at least one character")
        if not (self.allow is None or isinstance(self.allow, str) or callable(self.allow)):
            raise InputError(f"allow={self.allow!r} is neither a regular expression nor a function of ids")
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise InputError(f"rules: {rule!r} is not a Rule of cutaway.decoding.rules.scores")

    def _check_numbers(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "diversity"):
            x = getattr(self, name)
            if not (
                (isinstance(x, int | float) and not isinstance(x, bool))
                or (x is None and name in ("top_p", "min_p", "diversity"))
            ):
                raise InputError(f"{name}={x!r} is not a number")
            if abs(x or 0) >= LARGEST and isinstance(x, int):
                raise InputError(f"{name}={x} is too large for a number of 64 bits")
        for name in ("temperature", "diversity"):
            if not 0 <= (getattr(self, name) or 0) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)} is not a finite number of at least 0")
        for seed in self.seed if _is_list(self.seed) else [self.seed]:
            if not is_whole(seed):
                raise InputError(f"seed={seed!r} is not a whole number, nor a list of one for each prompt")

    def _check_drawing(self) -> None:
        """What cuts the tail off means nothing where the likeliest is taken."""
        for rule in self._tail():
            if not self.temperature:
                raise InputError(f"{rule} says among which words to draw, and at temperature=0 none is drawn: raise it")

    def _tail(self) -> list[Rule]:
        kinds = ((TopK, self.top_k), (TopP, self.top_p), (MinP, self.min_p))
        return [kind(value) for kind, value in kinds if value is not None]  # type: ignore[arg-type]

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def price(self) -> float:
        """Of a word that another group has just taken."""
        return 0.5 if self.diversity is None else self.diversity

    def seeds(self, n: int) -> Sequence[int]:
        """Those of n prompts."""
        if not isinstance(self.seed, Sequence):
            return [self.seed] * n
        if len(self.seed) != n:
            raise InputError(f"{len(self.seed)} seeds for {n} prompts: give one for each, or one for all")
        return self.seed

    def all_rules(self, tokenizer: Tokenizer, vocab_size: int, limit: int) -> tuple[Rule, ...]:
        """Those that change anything, for a text of at most `limit` tokens."""
        found = [*self.rules, *self._tail()]
        if self.temperature:
            found.append(Temperature(self.temperature))
        if self.no_repeat_ngram is not None:
            found.append(NoRepeat(self.no_repeat_ngram))
        if self.repetition_penalty != 1:
            found.append(RepetitionPenalty(self.repetition_penalty))
        if self.presence_penalty:
            found.append(PresencePenalty(self.presence_penalty))
        if self.min_tokens:
            found.append(MinLength(self.min_tokens))
        if self.bad_words:
            found += _bad_words(tokenizer, self.bad_words, vocab_size)
        if isinstance(self.allow, str):
            found.append(Matching(self.allow, tokenizer, limit))
        elif self.allow is not None:
            found.append(Allowed(self.allow))
        if self.stops and self.beam > 1:
            found.append(Stopping(self.stops, tokenizer))
        return in_order(found)


def is_whole(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool)


def _is_list(x: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(x, Sequence) and not isinstance(x, str | bytes)


def _bad_words(tokenizer: Tokenizer, words: Sequence[str | Sequence[int]], vocab_size: int) -> list[Rule]:
    """Texts are hidden however they are spelled, ids as they are."""
    texts: dict[str, None] = {}
    given: dict[tuple[int, ...], None] = {}
    for word in [words] if isinstance(words, str) else words:
        if isinstance(word, str):
            fits = bool(word.encode(errors="ignore"))  # half a surrogate pair is in no text
            texts[word] = None
        elif _is_list(word) and all(map(is_whole, word)):
            fits = bool(word) and 0 <= min(word) <= max(word) < vocab_size
            given[tuple(word)] = None
        else:
            raise InputError(f"bad_words: {word!r} is neither a text nor a list of token ids")
        if not fits:
            raise InputError(f"bad_words: {word!r} has no tokens of this model's vocabulary 0 … {vocab_size - 1}")
    by_ids: list[Rule] = [BadWords(tuple(given))] if given else []
    return by_ids + (bad_word_rules(tuple(texts), tokenizer, vocab_size) if texts else [])
