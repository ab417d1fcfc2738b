"""Minimal pairs: two sentences that differ in one thing, one good and one bad. Which does a model find likelier?

    "Many girls insulted themselves."   "Many girls insulted herself."      BLiMP (Warstadt et al. 2020): 67 kinds

    report = evaluate(model, tokenizer, [Pair("the dogs bark", "the dogs barks"), …])

How likely a model finds a sentence is in `sentence_log_p`.

If a model finds both sentences equally likely, it gets half a point, as if it had tossed a coin: a model that knows
nothing gets 1/2, and BLiMP's seven pairs of equal sentences favour nobody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.errors import InputError
from cutaway.evaluation import bootstrap
from cutaway.evaluation.options import BootstrapOptions, EvaluationOptions
from cutaway.evaluation.report import Report
from cutaway.evaluation.sentence_log_p import (
    BATCH_TOKENS,
    MASKED,
    check_language_model,
    log_p,
    pseudo_log_p,
    shown_beginning,
)
from cutaway.model.model import DecoderModel, Model
from cutaway.tokens import Tokenizer


@dataclass(frozen=True)
class Pair:
    """Two sentences, and what they are an example of, from wide to narrow: {"field": "syntax", "kind": "passive_1"}."""

    good: str
    bad: str
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PairGroup:
    """How many pairs of a group were told apart."""

    n: int
    accuracy: float
    interval: bootstrap.Interval | None = None


@dataclass(frozen=True)
class PairReport(Report):
    """`groups` are the same score by field, by term, by kind, as the pairs say."""

    groups: dict[str, dict[str, PairGroup]] = field(default_factory=dict)


@with_options
def minimal_pairs(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> PairReport:
    """The share of the pairs whose good sentence is more likely than the bad one."""
    if not pairs:
        raise InputError("no pairs, no score")
    masked = model.config.task in MASKED
    # each sentence once: it is faster, and equal sentences are equally likely to the last bit
    sentences = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    if masked:
        scores = pseudo_log_p(
            model,
            tokenizer,
            sentences,
            as_trained=options.as_trained,
            batch_tokens=options.batch_tokens or BATCH_TOKENS,
            progress=progress,
        )
        behind = {}
    else:
        check_language_model(model)
        assert isinstance(model, DecoderModel)
        scores = log_p(model, tokenizer, sentences, before=options.before, start=options.start, progress=progress)
        behind = {"behind": shown_beginning(model, tokenizer, options)}
    found = dict(zip(sentences, scores.tolist(), strict=True))
    good, bad = (np.array([found[getattr(pair, side)] for pair in pairs]) for side in ("good", "bad"))
    points = (good > bad) + (good == bad) / 2
    whole = group_of(points, options)
    return PairReport(
        "minimal_pairs",
        len(pairs),
        {"accuracy": whole.accuracy},
        {} if whole.interval is None else {"accuracy": whole.interval},
        settings={
            "by": "pseudo-log-likelihood" if masked else "log p",
            **behind,
            "ties": int((good == bad).sum()),
            "sentences": len(sentences),
        },
        groups=groups_of(pairs, points, options),
    )


def groups_of(pairs: Sequence[Any], points: np.ndarray, options: BootstrapOptions) -> dict[str, dict[str, PairGroup]]:
    """The points by what the examples are `of`."""
    found: dict[str, dict[str, PairGroup]] = {}
    for level in dict.fromkeys(level for pair in pairs for level in pair.of):
        names = np.array([pair.of.get(level, "") for pair in pairs])
        found[level] = {name: group_of(points[names == name], options) for name in sorted({*names.tolist()} - {""})}
    return found


def group_of(points: np.ndarray, options: BootstrapOptions) -> PairGroup:
    interval = bootstrap.intervals({"accuracy": bootstrap.mean_of(points)}, len(points), options).get("accuracy")
    return PairGroup(len(points), float(points.mean()), interval)
