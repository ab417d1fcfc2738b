"""How sure a score is: the bootstrap (Efron 1979; Koehn 2004 for BLEU).

Draw n examples from the test set with replacement and score them, a thousand times: the middle 95 % of these scores are
the confidence interval. Two systems are compared on the same draws.

    interval(mean_of(right), len(right), seed=0)                   # of an accuracy
    interval(corpus(counts), len(counts.rows), seed=0)             # of BLEU, from `bleu_counts`
    compare(counts_a, counts_b, seed=0)                            # is a really better than b?
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from cutaway.errors import InputError
from cutaway.evaluation.bleu import BleuCounts
from cutaway.evaluation.options import BootstrapOptions

Draws = Int[np.ndarray, "resamples n"]  # for each resampled test set, the numbers of its examples
Statistic = Callable[[Draws], Float[np.ndarray, " resamples"]]
AT_ONCE = 1 << 22  # numbers of examples that are drawn at once: 32 MB


@dataclass(frozen=True)
class Interval:
    """Between `low` and `high` lie `level` of the resampled scores."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class Comparison:
    """How much better the first is, the interval of the difference, and the p-value."""

    difference: float
    interval: Interval
    p_value: float


def interval(statistic: Statistic, n: int, *, seed: int, resamples: int = 1000, level: float = 0.95) -> Interval | None:
    """The percentile interval of a statistic of n examples. The same seed gives the same draws.

    None for a single example, whose resamples are all the same.
    """
    if not 0 < level < 1:
        raise InputError(f"level={level} is not between 0 and 1")
    values = np.concatenate([statistic(draws) for draws in _draws(n, seed, resamples)])
    return _interval(values, level) if n > 1 else None


def intervals(statistics: Mapping[str, Statistic], n: int, options: BootstrapOptions) -> dict[str, Interval]:
    """The interval of each of several statistics of n examples, of those that have one."""
    if not options.resamples:
        return {}
    how = {"seed": options.seed, "resamples": options.resamples, "level": options.level}
    found = {name: interval(statistic, n, **how) for name, statistic in statistics.items()}  # type: ignore[arg-type]
    return {name: one for name, one in found.items() if one is not None}


def compare(
    a: BleuCounts | Sequence[float] | np.ndarray,
    b: BleuCounts | Sequence[float] | np.ndarray,
    *,
    seed: int,
    resamples: int = 1000,
    level: float = 0.95,
) -> Comparison:
    """Two systems on the same examples: counts of BLEU or chrF, or a score per example, whose mean is compared.

    The p-value is two-sided: how often the difference strays from its own mean by as much as the two differ (Riezler &
    Maxwell 2005), so never below 1 / (resamples + 1).
    """
    if isinstance(a, BleuCounts) and isinstance(b, BleuCounts):
        if a.signature != b.signature or a.name != b.name:
            raise InputError(f"{a.name} ({a.signature}) and {b.name} ({b.signature}) cannot be compared")
        n, other, of_a, of_b = len(a.rows), len(b.rows), corpus(a), corpus(b)
    elif isinstance(a, BleuCounts) or isinstance(b, BleuCounts):
        raise InputError("one side has counts and the other scores: give the same kind on both")
    else:
        n, other, of_a, of_b = len(a), len(b), mean_of(a), mean_of(b)
    if n != other:
        raise InputError(f"{n} examples for the first and {other} for the second: compare on the same examples")
    everything = np.arange(n)[None]
    difference = float((of_a(everything) - of_b(everything))[0])
    values = np.concatenate([of_a(draws) - of_b(draws) for draws in _draws(n, seed, resamples)])
    as_far = int((np.abs(values - values.mean()) >= abs(difference)).sum())
    return Comparison(difference, _interval(values, level), (as_far + 1) / (resamples + 1))


# --- statistics -----------------------------------------------------------------------------------------------------


def mean_of(values: Sequence[float] | np.ndarray) -> Statistic:
    """The mean of a number per example."""
    numbers = np.asarray(values, dtype=np.float64)
    return lambda draws: numbers[draws].mean(axis=1)


def ratio_of(above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"]) -> Statistic:
    """A sum over a sum, such as bits over bytes."""
    return lambda draws: above[draws].sum(axis=1) / below[draws].sum(axis=1)


def corpus(counts: BleuCounts) -> Statistic:
    """A score of counts that add up, such as BLEU: how often each row was drawn, times the rows."""

    def statistic(draws: Draws) -> Float[np.ndarray, " resamples"]:
        resamples, n = draws.shape
        apart = draws + np.arange(resamples)[:, None] * n
        times = np.bincount(apart.ravel(), minlength=resamples * n).reshape(resamples, n)
        sums = times.astype(np.float64) @ counts.rows  # whole numbers below 2⁵³, and so exact
        return np.asarray([counts.from_sum(row) for row in sums.tolist()])

    return statistic


def each(score: Callable[[Any, Any], float], predicted: np.ndarray, wanted: np.ndarray) -> Statistic:
    """Any score of answers and what was wanted, draw by draw."""
    return lambda draws: np.asarray([score(predicted[row], wanted[row]) for row in draws])


# --- draws ----------------------------------------------------------------------------------------------------------


def _draws(n: int, seed: int, resamples: int) -> Iterator[Draws]:
    """All draws, several at a time; how many at a time makes no difference to them."""
    if n < 1:
        raise InputError("no examples to draw from")
    if resamples < 1:
        raise InputError(f"resamples={resamples}: at least one is needed")
    generator = np.random.default_rng(seed)
    few = max(1, AT_ONCE // n)
    for start in range(0, resamples, few):
        yield generator.integers(0, n, (min(few, resamples - start), n))


def _interval(values: Float[np.ndarray, " resamples"], level: float) -> Interval:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), level)
