"""Metrics: one number for each row, computed from the logits at the positions that matter.

A metric is any function from the logits of a pass (batch seq vocab; for a classifier, batch labels) to one number per
row. The metrics here also say which positions they read, so that the head, a third of GPT-2's work, runs only there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model.upcast import upcast

Logits = Float[Tensor, "batch *seq vocab"]
Measure = Callable[[Tensor], Tensor]  # any metric; a `Metric` also says where it reads
Tokens = int | Sequence[int] | Int[Tensor, " tokens"]  # one for all rows, or one for each
At = int | Sequence[int] | Int[Tensor, "rows *n"] | None  # for all rows; a tensor: each row's own; None: everywhere


def last_real(real: Bool[Tensor, "batch seq"]) -> Int[Tensor, " batch"]:
    """The position of the last real token of each row: `LogProbability(token, at=last_real(real))`.

    >>> last_real(torch.tensor([[True, True, False]]))
    """
    return (torch.arange(real.shape[1], device=real.device) * real).amax(dim=1)


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """Reads the logits at `at` and returns one number per row, the mean if there are several positions."""

    @abstractmethod
    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        """A number for each position that is read; the logits are in single precision at least."""

    def positions(self, batch: int, seq: int, device: torch.device) -> Int[Tensor, "batch n"]:
        """Which positions of each row it reads, counted from 0."""
        at: At = getattr(self, "at", None)
        if at is None:
            at = range(seq)
        own = at[:, None] if isinstance(at, Tensor) and at.ndim == 1 else torch.as_tensor(at, device=device)
        own = own.to(device).reshape(-1, own.shape[-1] if own.ndim else 1)
        if len(own) not in (1, batch):
            raise InputError(f"`at` of {type(self).__name__} has {len(own)} rows for a batch of {batch}")
        if own.numel() and (int(own.min()) < -seq or int(own.max()) >= seq):
            raise InputError(f"{type(self).__name__} reads position {_outside(own, seq)} of {seq}")
        return (own % seq).expand(batch, -1)

    def __call__(self, logits: Logits) -> Float[Tensor, " batch"]:
        if logits.ndim == 2:  # a classifier's: there is one position
            return self.read(upcast(logits)[:, None])[:, 0]
        batch, seq, _ = logits.shape
        return self.read(upcast(at_positions(logits, self.positions(batch, seq, logits.device)))).mean(dim=1)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "at" and isinstance(value, Sequence):
                object.__setattr__(self, field.name, torch.as_tensor(value))


@dataclass(frozen=True, eq=False)
class LogitDifference(Metric):
    """logit of `right` − logit of `wrong`: by how much one answer is ahead of the other.

    >>> LogitDifference(right=3, wrong=5)(model(ids))
    """

    right: Tokens
    wrong: Tokens
    at: At = -1

    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        return logit_of(logits, self.right) - logit_of(logits, self.wrong)


@dataclass(frozen=True, eq=False)
class LogProbability(Metric):
    """log p of a token, or of a label.

    >>> LogProbability(3)(model(ids))
    """

    token: Tokens
    at: At = -1

    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        return logit_of(logits, self.token) - logits.logsumexp(dim=-1)


@dataclass(frozen=True, eq=False)
class Probability(LogProbability):
    """p of a token, or of a label.

    >>> Probability(3)(model(ids))
    """

    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        return super().read(logits).exp()


@dataclass(frozen=True, eq=False)
class Logit(Metric):
    """The logit of a token, or of a label.

    >>> Logit(3)(model(ids))
    """

    token: Tokens
    at: At = -1

    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        return logit_of(logits, self.token)


@dataclass(frozen=True, eq=False)
class Kl(Metric):
    """KL(reference ‖ these logits), in nats: how far the whole distribution has moved.

    >>> Kl(model(ids))(model(other_ids))
    """

    reference: Logits
    at: At = -1

    def read(self, logits: Float[Tensor, "batch n vocab"]) -> Float[Tensor, "batch n"]:
        reference = self.reference
        if reference.ndim == 2:
            reference = reference[:, None]
        else:
            batch, seq, _ = reference.shape
            reference = at_positions(reference, self.positions(batch, seq, reference.device))
        if reference.shape != logits.shape:
            raise InputError(f"the reference of Kl is {tuple(reference.shape)}, the logits are {tuple(logits.shape)}")
        known, found = upcast(reference).log_softmax(dim=-1), logits.log_softmax(dim=-1)
        return (known.exp() * (known - found)).sum(dim=-1)


def check_real(metric: object, logits: Shaped[Tensor, "batch seq *width"], real: Tensor | None) -> None:
    """Refuses a metric that reads padding; the logits of a classifier have no positions."""
    if real is None or logits.ndim == 2 or not isinstance(metric, Metric):
        return
    batch, seq = real.shape
    read = real.gather(1, metric.positions(batch, seq, real.device))
    if not bool(read.all()):
        row = int((~read).any(dim=1).nonzero()[0])
        raise InputError(
            f"in row {row}, {type(metric).__name__} reads padding: use at=last_real(real), or positions that are real"
        )


def at_positions(
    x: Float[Tensor, "batch seq width"], positions: Int[Tensor, "batch n"]
) -> Float[Tensor, "batch n width"]:
    """The values at each row's own positions."""
    return x[torch.arange(len(x), device=x.device)[:, None], positions]


def logit_of(logits: Float[Tensor, "batch n vocab"], token: Tokens) -> Float[Tensor, "batch n"]:
    """Each row's score of its token."""
    batch, n, vocab = logits.shape
    chosen = torch.as_tensor(token, device=logits.device).reshape(-1)
    if len(chosen) not in (1, batch):
        raise InputError(f"{len(chosen)} tokens for a batch of {batch} rows: give one for all, or one for each")
    if int(chosen.min()) < 0 or int(chosen.max()) >= vocab:
        raise InputError(f"token {_outside(chosen, vocab, 0)} is outside 0…{vocab - 1}")
    return logits.gather(-1, chosen.expand(batch)[:, None, None].expand(batch, n, 1))[..., 0]


def _outside(values: Tensor, n: int, least: int | None = None) -> int:
    low, high = int(values.min()), int(values.max())
    return low if low < (-n if least is None else least) else high
