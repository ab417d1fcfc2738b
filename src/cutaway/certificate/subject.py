"""The model that is measured, and its results in a form that can be compared.

Most laws compare some way of computing with one of two others: every row by itself, or all rows in one padded batch.
These are computed once, and so is the exported folder. Padding is an ordinary token, so that a leak shows.
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

SOME = 32  # positions of a long row at which the head is evaluated
BY_POSITION = ("language_model", "masked_language_model", "pretrain", "tag", "translate", "hidden")
# outputs besides the scores: the part of the head, its task, and the name of the output in `transformers`
OTHER_OUTPUTS = (("next_sentence", "pretrain", "seq_relationship_logits"), ("pool", "hidden", "pooler_output"))


class Batch(NamedTuple):
    """The inputs of `model.hidden`, and where its output is real."""

    given: list[Tensor]
    more: dict[str, Any]
    real: Bool[Tensor, "batch seq"] | None


class Subject(ExitStack):
    """A model and its inputs. A context manager, which removes the exported folder: `with Subject(model, inputs) as …`.

    A second subject with other inputs uses the folder of the `first`.
    """

    def __init__(self, model: Model, inputs: Inputs, first: "Subject | None" = None) -> None:
        super().__init__()
        self.model, self.inputs, self.first = model, inputs, first

    def __enter__(self) -> Self:
        return self

    @cached_property
    def batch(self) -> Batch:
        return batch_of(self.model, self.inputs, "right")

    @cached_property
    @torch.no_grad()
    def hidden(self) -> Float[Tensor, "batch seq d_model"]:
        """The hidden states of all rows in one padded batch."""
        return self.model.hidden(*self.batch.given, **self.batch.more)

    @cached_property
    @torch.no_grad()
    def batched(self) -> list[Tensor]:
        """The results of each row, computed in one padded batch."""
        return answers(self.model, self.hidden, self.batch.real, long=self.inputs.long)

    @cached_property
    @torch.no_grad()
    def hidden_single(self) -> list[Float[Tensor, "1 seq d_model"]]:
        """The hidden states of each row in a batch of its own, without padding and without a mask."""
        batches = [batch_of(self.model, self.inputs.only(i), "right") for i in range(len(self.inputs))]
        return [
            self.model.hidden(*given, **{name: x for name, x in more.items() if name == "segments"})
            for given, more, _ in batches
        ]

    @cached_property
    @torch.no_grad()
    def single(self) -> list[Tensor]:
        """The results of each row, computed in a batch of its own."""
        return [answers(self.model, hidden, None, long=self.inputs.long)[0] for hidden in self.hidden_single]

    @cached_property
    @torch.no_grad()
    def single_by_position(self) -> list[Float[Tensor, "seq answers"]]:
        """The same, position by position."""
        return [by_position(self.model, hidden[0], long=self.inputs.long) for hidden in self.hidden_single]

    @cached_property
    def exported(self) -> Path:
        """A folder with the model in the Hugging Face format, if that format has such a model."""
        if self.first is not None:
            return self.first.exported
        if has_8_bits(self.model):
            raise NotApplicable("models with 8-bit matrices are not exported")
        try:
            write_config(self.model.config)
        except CheckpointError as error:
            raise NotApplicable(str(error)) from None
        folder = self.enter_context(TemporaryDirectory(prefix="cutaway-verify-"))
        export(self.model, folder)
        return Path(folder)


def batch_of(model: Model, inputs: Inputs, side: Side) -> Batch:
    if inputs.pictures is not None:
        return Batch([inputs.pictures], {}, None)
    filler = min(7, model.config.to_dict()["vocab_size"] - 1)
    ids, real = padded_inputs(inputs.rows, side, filler, model.device)
    if inputs.targets:
        targets, targets_real = padded_inputs(inputs.targets, side, filler, model.device)
        return Batch([ids, targets], {"source_real": real, "real": targets_real}, targets_real)
    more = {"real": real}
    if inputs.segments:
        more["segments"], _ = padded_inputs(inputs.segments, side, 0, model.device)
    return Batch([ids], more, real)


@torch.no_grad()
def batch_answers(model: Model, batch: Batch, *, long: bool, scores: bool = False) -> list[Tensor]:
    """The results of each row of a batch."""
    return answers(model, model.hidden(*batch.given, **batch.more), batch.real, long=long, scores=scores)


@torch.no_grad()
def answers(
    model: Model, hidden: Float[Tensor, "batch seq d_model"], real: Tensor | None, *, long: bool, scores: bool = False
) -> list[Tensor]:
    """All outputs of the head for each row at its real positions, as one vector.

    For long rows, the scores at some positions, and before them the hidden states, unless `scores` leaves them out.
    """
    some = long and model.config.task in BY_POSITION
    outputs = [] if some else [model.head(hidden, real)]
    outputs += [part(hidden, real) for part, _ in other_outputs(model)]

    def of_row(i: int) -> Tensor:
        whole = [x[i] if real is None or x.ndim < 3 else x[i][real[i]] for x in outputs]
        if some:
            own = hidden[i] if real is None else hidden[i][real[i]]
            whole = [own] * (not scores) + [model.head(own[some_positions(len(own))][None])[0], *whole]
        return torch.cat([x.flatten() for x in whole])

    return [of_row(i) for i in range(len(hidden))]


def some_positions(n: int) -> list[int]:
    """Some of n positions, with the first and the last."""
    return sorted({round(at * (n - 1) / (SOME - 1)) for at in range(SOME)})


def other_outputs(model: Model) -> list[tuple[Part, str]]:
    """The outputs of the head besides its scores, with their names in `transformers`."""
    task = model.config.task
    parts = [(getattr(model.head, name, None), theirs) for name, its_task, theirs in OTHER_OUTPUTS if its_task == task]
    return [(part, theirs) for part, theirs in parts if part is not None]


def by_position(model: Model, hidden: Float[Tensor, "seq d_model"], *, long: bool) -> Float[Tensor, "seq answers"]:
    """What can be compared position by position: scores, if the head scores each position, else hidden states."""
    return hidden if long or model.config.task not in BY_POSITION else model.head(hidden[None])[0]
