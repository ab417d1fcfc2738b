"""Linear interpolation of several models: p(w | h) = Σ share · p(w | h) of each, with shares that sum to 1.

    fit_mixture([words, classes], held_out)    the shares that fit a text best, found by expectation maximisation

The text must be one that none of the models has learnt from: on its own text the model that learnt it by heart wins
everything. (Jelinek & Mercer 1980.)
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from cutaway.before.ngrams.counts import Ids
from cutaway.before.ngrams.predictor import Predictor
from cutaway.errors import ConfigError, InputError

ROUNDS, STILL = 1000, 1e-7  # at most so many; until no share moves further than this


class Mixture(Predictor):
    """`Mixture([words, classes], [0.7, 0.3])`."""

    def __init__(self, models: Sequence[Predictor], shares: Sequence[float]) -> None:
        if len(models) != len(shares) or not models or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ConfigError(f"shares {list(shares)} for {len(models)} models: one each, and they sum to 1")
        if len({(model.vocab_size, model.end) for model in models}) > 1:
            raise ConfigError("models of different vocabularies do not mix")
        self.models, self.shares = tuple(models), np.array(shares, np.float64)
        self.vocab_size, self.end = models[0].vocab_size, models[0].end

    def log_probabilities(self, ids: Ids) -> Float64[np.ndarray, " token"]:
        said = np.stack([model.log_probabilities(ids) for model in self.models])
        with np.errstate(divide="ignore"):
            return np.logaddexp.reduce(said + np.log(self.shares)[:, None], axis=0)

    def next_probabilities(self, past: Ids | Sequence[int]) -> Float64[np.ndarray, " vocab"]:
        return self.shares @ np.stack([model.next_probabilities(past) for model in self.models])

    def __str__(self) -> str:
        return " + ".join(f"{share:.2f} · {model}" for share, model in zip(self.shares, self.models, strict=True))


def fit_mixture(models: Sequence[Predictor], ids: Ids) -> Mixture:
    """The mixture with the largest probability of a text, at least that of the best single model."""
    if not len(ids):
        raise InputError("there is no text to fit the shares to")
    said = np.stack([model.log_probabilities(ids) for model in models])
    p = np.exp(said - said.max(axis=0))
    shares = np.full(len(models), 1 / len(models))
    for _ in range(ROUNDS):
        votes = shares[:, None] * p
        before, shares = shares, (votes / votes.sum(axis=0)).mean(axis=1)
        if np.abs(shares - before).max() < STILL:
            break
    alone = np.eye(len(models))  # where one of them is best, the steps towards it grow ever shorter, and end before it
    with np.errstate(divide="ignore"):
        best = max([*alone, shares], key=lambda some: float(np.log(some @ p).sum()))
    return Mixture(models, best.tolist())
