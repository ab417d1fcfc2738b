"""Which languages a small model learns from short words, and whether it generalises to longer ones.

    results = run_experiment(["parity", "dyck-2"], ["rotary", "lstm"])
    results.shares["dyck-2"]["rotary"]      the share of words in each range of lengths that it answers correctly

At each position in a word, the model predicts for every symbol whether it may come next, and whether the word may end
here (Gers & Schmidhuber 2001). The language gives the answers, so they do not depend on which words were drawn. A word
counts as correct if every one of these predictions is.
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

from cutaway.arguments import with_options
from cutaway.before.chomsky.languages import LANGUAGES, Language, draw_words, language_named
from cutaway.before.chomsky.network import MODELS, small_model
from cutaway.before.options import LanguageOptions
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel
from cutaway.pictures import HeatMap, Lines

START = 0  # as an input <sos>; as an output: the word may end here. The symbols are 1, 2, …
RANGES = 3  # lengths up to one, two and three times those of training


@dataclass(frozen=True)
class Words:
    """Words as ids behind <sos>, the symbols that may follow at each position, and which positions are not padding."""

    ids: Int[Tensor, "word place"]
    may: Bool[Tensor, "word place symbol"]
    real: Bool[Tensor, "word place"]

    def select(self, which: Int[Tensor, " some"]) -> "Words":
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
    """The mean binary cross-entropy of all predictions."""
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
    progress: Callable[[float], None] = lambda done: None,
) -> int:
    """Trains for at most `steps` batches and `seconds`; returns the number of batches."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    begin = time.perf_counter()
    for step in range(steps):
        done = max(step / steps, (time.perf_counter() - begin) / seconds)
        if done >= 1:
            return step
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50, 2 * (1 - done))
        loss = loss_of(model, words.select(torch.randint(len(words.ids), (batch,), generator=generator)))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress(done)
    return steps


@torch.no_grad()
def recognises(model: DecoderModel, words: Words) -> Bool[Tensor, " word"]:
    """Which words the model answers correctly throughout."""
    return all_correct(model(words.ids), words)


def all_correct(scores: Float[Tensor, "word place symbol"], words: Words) -> Bool[Tensor, " word"]:
    wrong = ((scores > 0) != words.may).any(dim=-1)
    return ~(wrong & words.real).any(dim=1)


@dataclass(frozen=True)
class LanguageResults:
    """Shares of correct words, `shares[language][model]`, one for each range of lengths; and the steps taken."""

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
        """For one language lines by length, unless they all coincide; otherwise a heat map."""
        models = list(next(iter(self.shares.values())))
        heights = {share for each in self.shares.values() for shares in each.values() for share in shares}
        if len(self.shares) == 1 and len(heights) > 1:
            ((name, shares),) = self.shares.items()
            middles = [(low + high) / 2 for low, high in self.ranges]  # a share is that of a whole range
            spans = ", ".join(f"{low}–{high}" for low, high in self.ranges)
            learnt = f"learnt from words of at most {self.longest} symbols"
            return Lines(
                middles,
                shares,
                title=f"{name}, {learnt}",
                x_name=f"length (middle of {spans})",
                y_name=f"share of words right, {learnt}",  # a drawing does not show its title
            )
        rows = [f"{name} {low}–{high}" for name in self.shares for low, high in self.ranges]
        none = [nan] * RANGES  # for a model that was interrupted
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


@with_options
def run_experiment(
    languages: Sequence[str] = tuple(LANGUAGES),
    models: Sequence[str] = MODELS,
    *,
    options: LanguageOptions,
    progress: Callable[[float, str], None] = lambda done, run: None,
    on_result: Callable[[LanguageResults], None] = lambda results: None,
) -> LanguageResults:
    """Trains every model on every language. With `minutes`, each run gets its share of them, and perhaps fewer steps.

    `on_result` gets the results so far after each run, so that an interruption loses none. They leave out languages
    without any result, and the last language may lack models.
    """
    longest = options.length
    chosen = [language_named(name) for name in languages]
    if unknown := [name for name in models if name not in MODELS]:
        raise InputError(f"no model is called {unknown[0]!r}: {', '.join(MODELS)}")
    begin = time.perf_counter()
    ranges = tuple((1 + i * longest, (i + 1) * longest) for i in range(RANGES))
    shares: dict[str, dict[str, list[float]]] = {language.name: {} for language in chosen}
    taken: dict[str, dict[str, int]] = {language.name: {} for language in chosen}
    runs = [(language, name) for language in chosen for name in models]

    def so_far() -> LanguageResults:
        begun = {name: dict(each) for name, each in shares.items() if each}
        steps_of = {name: {model: taken[name][model] for model in each} for name, each in begun.items()}
        return LanguageResults(longest, ranges, begun, steps_of, time.perf_counter() - begin)

    # Drawn before the first run, so that a language without words of these lengths is refused at once.
    training = {it.name: words_of_language(it, draw_words(it, 1, longest, options.pool, options.seed)) for it in chosen}
    n, seed = options.words, options.seed + 1
    tests = {it.name: [words_of_language(it, draw_words(it, *ends, n, seed)) for ends in ranges] for it in chosen}
    for number, (language, name) in enumerate(runs):
        left = inf if options.minutes is None else options.minutes * 60 - (time.perf_counter() - begin)
        model = small_model(name, len(language.symbols) + 1, longest * RANGES + 1, options.seed)

        def on_step(done: float, at: int = number, run: str = f"{language.name}, {name}") -> None:
            progress((at + done) / len(runs), run)

        seconds = max(left / (len(runs) - number), 1e-3)
        taken[language.name][name] = train_on_words(
            model, training[language.name], steps=options.steps, seconds=seconds, seed=options.seed, progress=on_step
        )
        shares[language.name][name] = [
            round(float(recognises(model, test).double().mean()), 4) for test in tests[language.name]
        ]
        on_result(so_far())
    return so_far()
