"""Which languages a small model learns from short words, and whether it still knows them in longer ones.

    found = study(["parity", "dyck-2"], ["rotary", "lstm"])
    found.share("dyck-2", "rotary")      of the words in each range of lengths, how many were right throughout

At each place of a word the model says, symbol by symbol, whether it may come next, and whether the word may end here
(Gers & Schmidhuber 2001). The language knows, so nothing depends on how often words were drawn. A word is right when
every one of these answers is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.before.chomsky.languages import LANGUAGES, Language, drawn_words, language_named
from cutaway.before.chomsky.network import MODELS, small_model
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel
from cutaway.pictures import HeatMap, Lines

START = 0  # in: <sos>; out: the word may end here. The symbols are 1, 2, …
POOL = 4096  # words that a model learns from, over and over
RANGES = 3  # lengths up to once, twice and three times those of training


@dataclass(frozen=True)
class Words:
    """Rows of ids behind <sos>, what may come behind each, and which places are real."""

    ids: Int[Tensor, "word place"]
    may: Bool[Tensor, "word place symbol"]
    real: Bool[Tensor, "word place"]

    def some(self, which: Int[Tensor, " some"]) -> "Words":
        longest = int(self.real[which].sum(dim=1).max())
        return Words(*(each[which, :longest] for each in (self.ids, self.may, self.real)))


def words_of_language(language: Language, words: Sequence[str]) -> Words:
    shape = (len(words), max(map(len, words)) + 1)
    ids, real = np.full(shape, START), np.zeros(shape, bool)
    may = np.zeros((*shape, len(language.symbols) + 1), bool)
    for row, word in enumerate(words):
        state = language.start
        for place, symbol in enumerate((*word, None)):
            next_symbols = language.next_symbols(state)
            may[row, place] = [language.ends(state), *(s in next_symbols for s in language.symbols)]
            if symbol is not None:
                ids[row, place + 1] = 1 + language.symbols.index(symbol)
                state = language.step(state, symbol)
        real[row, : len(word) + 1] = True
    return Words(*map(torch.from_numpy, (ids, may, real)))


def loss_of(model: DecoderModel, words: Words) -> Float[Tensor, ""]:
    """The mean surprise at each answer, symbol by symbol."""
    scores = model(words.ids)
    losses = F.binary_cross_entropy_with_logits(scores, words.may.to(scores.dtype), reduction="none")
    return losses[words.real].mean()


def train_on_words(
    model: DecoderModel,
    words: Words,
    *,
    steps: int,
    seconds: float = inf,
    batch: int = 32,
    rate: float = 2e-3,
    seed: int = 0,
    report: Callable[[float], None] = lambda done: None,
) -> int:
    """At most `steps` batches in at most so many seconds; how many they were. `report` is told the share done."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    begin = time.perf_counter()
    for step in range(steps):
        done = max(step / steps, (time.perf_counter() - begin) / seconds)
        if done >= 1:
            return step
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (1 - done))
        loss = loss_of(model, words.some(torch.randint(len(words.ids), (batch,), generator=generator)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report(done)
    return steps


@torch.no_grad()
def right(model: DecoderModel, words: Words) -> Bool[Tensor, " word"]:
    """Whether all that a model says of a word is right."""
    return all_right(model(words.ids), words)


def all_right(scores: Float[Tensor, "word place symbol"], words: Words) -> Bool[Tensor, " word"]:
    wrong = ((scores > 0) != words.may).any(dim=-1)
    return ~(wrong & words.real).any(dim=1)


@dataclass(frozen=True)
class LanguageResults:
    """Shares of right words: `shares[language][model]`, one for each range of lengths; `steps` likewise."""

    longest: int  # in training
    ranges: tuple[tuple[int, int], ...]
    shares: dict[str, dict[str, list[float]]]
    steps: dict[str, dict[str, int]]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "trained_up_to": self.longest,
            "ranges": [list(one) for one in self.ranges],
            "languages": {name: language_named(name).kind for name in self.shares},
            "right": self.shares,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
        }

    def picture(self) -> HeatMap | Lines:
        """One language: its lines by length, unless all are at one height, which has no scale. Else: a heat map."""
        models = list(next(iter(self.shares.values())))
        heights = {share for each in self.shares.values() for shares in each.values() for share in shares}
        if len(self.shares) == 1 and len(heights) > 1:
            ((name, shares),) = self.shares.items()
            middles = [(low + high) / 2 for low, high in self.ranges]  # a share is of the span, not of its last length
            spans = ", ".join(f"{low}–{high}" for low, high in self.ranges)
            learnt = f"learnt from words of at most {self.longest} symbols"
            return Lines(
                middles,
                shares,
                title=f"{name}, {learnt}",
                x_name=f"length (middle of {spans})",
                y_name=f"share of words right, {learnt}",  # a drawing alone does not show its title
            )
        rows = [f"{name} {low}–{high}" for name in self.shares for low, high in self.ranges]
        none = [nan] * RANGES  # of a model that was interrupted
        values = [[shares.get(m, none)[i] for m in models] for shares in self.shares.values() for i in range(RANGES)]
        return HeatMap(
            np.array(values),
            rows,
            models,
            title=f"Words right, learnt from at most {self.longest} symbols",
            row_name="language and lengths",
            column_name="positions, or lstm",
            what="share of words",
            low=0.0,
            high=1.0,
            digits=True,
        )


def run_experiment(
    languages: Sequence[str] = tuple(LANGUAGES),
    models: Sequence[str] = MODELS,
    *,
    longest: int = 16,
    steps: int = 500,
    minutes: float | None = None,
    n_words: int = 100,
    pool: int = POOL,
    seed: int = 0,
    report: Callable[[float, str], None] = lambda done, what: None,
    finished: Callable[[LanguageResults], None] = lambda found: None,
) -> LanguageResults:
    """Trains every model on every language. With `minutes` each run has its part of them, and perhaps fewer steps.

    `finished` is given what there is after each run, for whoever is interrupted: languages that are not begun are not
    in it, and the last may lack models.
    """
    known = [language_named(name) for name in languages]
    if odd := [name for name in models if name not in MODELS]:
        raise InputError(f"no model is called {odd[0]!r}: {', '.join(MODELS)}")
    begin = time.perf_counter()
    ranges = tuple((1 + i * longest, (i + 1) * longest) for i in range(RANGES))
    shares: dict[str, dict[str, list[float]]] = {language.name: {} for language in known}
    taken: dict[str, dict[str, int]] = {language.name: {} for language in known}
    runs = [(language, name) for language in known for name in models]

    def so_far() -> LanguageResults:
        begun = {name: dict(each) for name, each in shares.items() if each}
        steps_of = {name: {model: taken[name][model] for model in each} for name, each in begun.items()}
        return LanguageResults(longest, ranges, begun, steps_of, time.perf_counter() - begin)

    # Drawn before the first run: a language without words of such lengths is refused at once.
    material = {it.name: words_of_language(it, drawn_words(it, 1, longest, pool, seed)) for it in known}
    tests = {
        it.name: [words_of_language(it, drawn_words(it, *ends, n_words, seed + 1)) for ends in ranges] for it in known
    }
    for number, (language, name) in enumerate(runs):
        left = inf if minutes is None else minutes * 60 - (time.perf_counter() - begin)
        model = small_model(name, len(language.symbols) + 1, longest * RANGES + 1, seed)

        def told(done: float, at: int = number, what: str = f"{language.name}, {name}") -> None:
            report((at + done) / len(runs), what)

        seconds = max(left / (len(runs) - number), 1e-3)
        taken[language.name][name] = train_on_words(
            model, material[language.name], steps=steps, seconds=seconds, seed=seed, report=told
        )
        shares[language.name][name] = [
            round(float(right(model, test).double().mean()), 4) for test in tests[language.name]
        ]
        finished(so_far())
    return so_far()
