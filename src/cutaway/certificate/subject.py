"""The model that is examined, and its answers in a form that can be held against each other.

Most laws hold another way of computing against the same two: every row alone, and all in one padded batch. Each is
computed once, and so is the exported folder. Padding is filled with a token that means something, so that a leak shows.
"""

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.certificate.eight_bits import has_8_bits
from cutaway.certificate.entry import NotApplicable
from cutaway.certificate.inputs import Inputs, Side, padded_inputs
from cutaway.checkpoints import export
from cutaway.checkpoints.hf import write_config
from cutaway.errors import CheckpointError
from cutaway.model.model import Model
from cutaway.model.tap import Part

FEW = 32  # places of a long row at which the head is asked
PLACEWISE = ("language_model", "masked_language_model", "pretrain", "tag", "translate", "hidden")
# what a head says besides its scores: the part, the task that it is for, and the name that `transformers` gives it
BESIDES = (("next_sentence", "pretrain", "seq_relationship_logits"), ("pool", "hidden", "pooler_output"))


class Batch(NamedTuple):
    """What `model.hidden` is given, and where its output is real."""

    given: list[Tensor]
    more: dict[str, Any]
    real: Bool[Tensor, "batch seq"] | None


class Subject(ExitStack):
    """A model and what it is asked. To be left, because of the exported folder: `with Subject(model, asked) as …`.

    One that is asked something else besides takes the folder of the `first`.
    """

    def __init__(self, model: Model, asked: Inputs, first: "Subject | None" = None) -> None:
        super().__init__()
        self.model, self.asked, self.first = model, asked, first

    def __enter__(self) -> Self:
        return self

    @cached_property
    def batch(self) -> Batch:
        return batch_of(self.model, self.asked, "right")

    @cached_property
    @torch.no_grad()
    def hidden(self) -> Float[Tensor, "batch seq d_model"]:
        """Of all rows in one batch."""
        return self.model.hidden(*self.batch.given, **self.batch.more)

    @cached_property
    @torch.no_grad()
    def together(self) -> list[Tensor]:
        """All answers from one batch."""
        return answers(self.model, self.hidden, self.batch.real, long=self.asked.long)

    @cached_property
    @torch.no_grad()
    def hidden_alone(self) -> list[Float[Tensor, "1 seq d_model"]]:
        """Of each row in a batch of its own, in which nothing is padded, so that no mask says so."""
        batches = [batch_of(self.model, self.asked.only(i), "right") for i in range(len(self.asked))]
        return [
            self.model.hidden(*given, **{name: x for name, x in more.items() if name == "segments"})
            for given, more, _ in batches
        ]

    @cached_property
    @torch.no_grad()
    def alone(self) -> list[Tensor]:
        """All answers, each from a batch of its own."""
        return [answers(self.model, hidden, None, long=self.asked.long)[0] for hidden in self.hidden_alone]

    @cached_property
    @torch.no_grad()
    def states_alone(self) -> list[Float[Tensor, "seq answers"]]:
        """The same, place by place."""
        return [states(self.model, hidden[0], long=self.asked.long) for hidden in self.hidden_alone]

    @cached_property
    def exported(self) -> Path:
        """The model in the Hugging Face layout, where that has a word for it."""
        if self.first is not None:
            return self.first.exported
        if has_8_bits(self.model):
            raise NotApplicable("8-bit matrices stay here")
        try:
            write_config(self.model.config)
        except CheckpointError as error:
            raise NotApplicable(str(error)) from None
        folder = self.enter_context(TemporaryDirectory(prefix="cutaway-verify-"))
        export(self.model, folder)
        return Path(folder)


def batch_of(model: Model, asked: Inputs, side: Side) -> Batch:
    if asked.pictures is not None:
        return Batch([asked.pictures], {}, None)
    filler = min(7, model.config.to_dict()["vocab_size"] - 1)
    ids, real = padded_inputs(asked.rows, side, filler, model.device)
    if asked.targets:
        targets, targets_real = padded_inputs(asked.targets, side, filler, model.device)
        return Batch([ids, targets], {"source_real": real, "real": targets_real}, targets_real)
    more = {"real": real}
    if asked.segments:
        more["segments"], _ = padded_inputs(asked.segments, side, 0, model.device)
    return Batch([ids], more, real)


@torch.no_grad()
def together(model: Model, batch: Batch, *, long: bool, scores: bool = False) -> list[Tensor]:
    """All answers of some model from one batch."""
    return answers(model, model.hidden(*batch.given, **batch.more), batch.real, long=long, scores=scores)


@torch.no_grad()
def answers(
    model: Model, hidden: Float[Tensor, "batch seq d_model"], real: Tensor | None, *, long: bool, scores: bool = False
) -> list[Tensor]:
    """All that the head says of each row at its real places, as one row of numbers.

    Of long rows the hidden states, unless only `scores` are asked for, and what the head says at a few places.
    """
    some = long and model.config.task in PLACEWISE
    said = [] if some else [model.head(hidden, real)]
    said += [part(hidden, real) for part, _ in besides(model)]

    def of_row(i: int) -> Tensor:
        whole = [x[i] if real is None or x.ndim < 3 else x[i][real[i]] for x in said]
        if some:
            own = hidden[i] if real is None else hidden[i][real[i]]
            whole = [own] * (not scores) + [model.head(own[few_of(len(own))][None])[0], *whole]
        return torch.cat([x.flatten() for x in whole])

    return [of_row(i) for i in range(len(hidden))]


def few_of(n: int) -> list[int]:
    """A few of n places, the first and the last among them."""
    return sorted({round(at * (n - 1) / (FEW - 1)) for at in range(FEW)})


def besides(model: Model) -> list[tuple[Part, str]]:
    """What else the head can be asked, and what `transformers` calls that."""
    parts = [(getattr(model.head, name, None), theirs) for name, task, theirs in BESIDES if task == model.config.task]
    return [(part, theirs) for part, theirs in parts if part is not None]


def states(model: Model, hidden: Float[Tensor, "seq d_model"], *, long: bool) -> Float[Tensor, "seq answers"]:
    """What can be compared place by place: the head's scores where it scores places, else the hidden states."""
    return hidden if long or model.config.task not in PLACEWISE else model.head(hidden[None])[0]
