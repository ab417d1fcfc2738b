"""How well answers agree with what was wanted: GLUE's metrics (Wang et al. 2018), with numpy alone.

    accuracy   the share of right answers
    F1         2 · TP / (2 · TP + FP + FN), the harmonic mean of precision and recall
    Matthews   the correlation of two sets of classes; 0 is chance, whatever the classes' shares
    Pearson    cov(x, y) / (σ_x · σ_y)
    Spearman   Pearson of the ranks; equal numbers share the mean of their ranks

A correlation with something constant is 0/0, and so is the F1 of a class that never occurs. Here both are 0.0, never
NaN, and without a warning, because a model that has just begun to learn gives the same answer to everything.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from cutaway.errors import InputError

Answers = Sequence[Any] | np.ndarray  # one for each example: a class, by number or by name, or a number


def accuracy(predicted: Answers, wanted: Answers) -> float:
    """The share of right answers."""
    predicted, wanted = _paired(predicted, wanted)
    return float((predicted == wanted).mean())


def f1(predicted: Answers, wanted: Answers, *, positive: Any = 1) -> float:
    """F1 of the class `positive`; 0.0 if it never occurs."""
    predicted, wanted = _paired(predicted, wanted)
    return _f1(predicted == positive, wanted == positive)


def macro_f1(predicted: Answers, wanted: Answers) -> float:
    """The mean F1 of all classes that occur, each with the same weight."""
    predicted, wanted = _paired(predicted, wanted)
    classes = np.unique(np.concatenate([predicted, wanted]))
    return float(np.mean([_f1(predicted == one, wanted == one) for one in classes]))


def _f1(predicted: Bool[np.ndarray, " n"], wanted: Bool[np.ndarray, " n"]) -> float:
    named = int(predicted.sum()) + int(wanted.sum())  # 2 TP + FP + FN
    return 2 * int((predicted & wanted).sum()) / named if named else 0.0


def matthews(predicted: Answers, wanted: Answers) -> float:
    """Matthews' correlation, of two classes or more (Gorodkin 2004); 0.0 where one side is constant."""
    predicted, wanted = _paired(predicted, wanted)
    classes, both = np.unique(np.concatenate([predicted, wanted]), return_inverse=True)
    k, n = len(classes), len(predicted)
    table = np.bincount(both[n:] * k + both[:n], minlength=k * k).reshape(k, k).astype(np.float64)
    truly, said = table.sum(axis=1), table.sum(axis=0)
    spread = (n * n - truly @ truly) * (n * n - said @ said)
    # whole numbers, and exact: 0 means constant
    return float((table.trace() * n - truly @ said) / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(x: Answers, y: Answers) -> float:
    """Pearson's correlation; 0.0 where one side is constant."""
    x, y = _numbers(x, y)
    if (x == x[0]).all() or (y == y[0]).all():  # compared exactly: less the mean, rounding errors would be left
        return 0.0
    x, y = _centred(x), _centred(y)
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(x: Answers, y: Answers) -> float:
    """Spearman's correlation, of ranks; 0.0 where one side is constant."""
    x, y = _numbers(x, y)
    return pearson(ranks(x), ranks(y))


def ranks(x: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """1 for the smallest; equal numbers share the mean of their ranks."""
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def scores_for(n_classes: int | None) -> dict[str, Callable[[Answers, Answers], float]]:
    """GLUE's scores by name; None stands for numbers."""
    if n_classes is None:
        return {"pearson": pearson, "spearman": spearman}
    mean = {"f1": f1} if n_classes == 2 else {"macro_f1": macro_f1}
    return {"accuracy": accuracy, **mean, "matthews": matthews}


def span_f1(predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """F1 of whole spans of B-X I-X … O tags (CoNLL 2003): right is only what has the same place, length and kind."""
    _check_number(len(predicted), len(wanted))
    for row, (said, truly) in enumerate(zip(predicted, wanted, strict=True)):
        if len(said) != len(truly):
            raise InputError(f"sentence {row} has {len(truly)} tags, and {len(said)} were predicted")
    said_, truly_ = (
        {(row, *span) for row, tags in enumerate(side) for span in spans(tags)} for side in (predicted, wanted)
    )
    named = len(said_) + len(truly_)
    return 2 * len(said_ & truly_) / named if named else 0.0


def spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """(start, stop, kind) of each span. An I-X that continues nothing begins one, as in CoNLL's own script.

    Other schemes mark the last word of a span (E-X, L-X) and a word that is one by itself (S-X, U-X).
    """
    found: list[tuple[int, int, str]] = []
    start, kind = 0, ""
    for at, tag in enumerate([*tags, "O"]):
        mark, _, its_kind = tag.partition("-")
        if kind and (mark not in ("I", "E", "L") or its_kind != kind):
            found.append((start, at, kind))
            kind = ""
        if not kind and mark in ("B", "I", "E", "L", "S", "U"):
            start, kind = at, its_kind
        if kind and mark in ("E", "L", "S", "U"):
            found.append((start, at + 1, kind))
            kind = ""
    return found


def _centred(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Mean 0 and length 1; divided by its largest first, so that no square overflows or vanishes."""
    x = x - x.mean()
    x = x / np.abs(x).max()
    return x / np.linalg.norm(x)


def _numbers(x: Answers, y: Answers) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    x, y = (np.asarray(side, dtype=np.float64) for side in _paired(x, y))
    for side in (x, y):
        if not (finite := np.isfinite(side)).all():
            raise InputError(
                f"answer {int(finite.argmin())} is {side[finite.argmin()]}, which has no correlation with anything"
            )
    return x, y


def _paired(x: Answers, y: Answers) -> tuple[Shaped[np.ndarray, " n"], Shaped[np.ndarray, " n"]]:
    _check_number(len(x), len(y))
    x, y = np.asarray(x), np.asarray(y)
    if x.ndim != 1 or y.ndim != 1:
        raise InputError(f"answers of shape {x.shape} for {y.shape}: expected one answer for each example")
    if (x.dtype.kind == "U") != (y.dtype.kind == "U"):
        raise InputError(f"answers such as {x[0]!r} for {y[0]!r}: names on both sides, or numbers on both")
    return x, y


def _check_number(predicted: int, wanted: int) -> None:
    if predicted != wanted:
        raise InputError(f"{predicted} answers for {wanted} examples")
    if not wanted:
        raise InputError("no examples, no score")
