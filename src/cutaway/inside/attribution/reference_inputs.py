"""Baselines: uninformative inputs that an input is compared with.

For tokens (their positions stay):
    "zero"          the zero vector
    "pad"           the vector of the padding token
    "mean"          the mean of all tokens' vectors
    a number        the vector of this token, such as the unknown token
    ids             batch × seq: other tokens in their places
For images:
    "zero"          zeros, where the gradients are taken
    "black" "white" an image of that colour; "mean" one of the image's own mean colour. Black is byte 0, normalised with
                    the mean and deviation of the model, or of the question (`ask_image`)
For both, a tensor of floats is used as it is, broadcast to the values where the gradients are taken.
A model with a source and a target may have one for each: (baseline, baseline).

No baseline is neutral. The zero vector never occurred in training, so that it stands for a strange sentence; black has
a meaning in an image of a digit, and gets no score where the image is black.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.decoding.single_pass import pixels_of
from cutaway.errors import InputError
from cutaway.inside.attribution.gradients import Gradients, replace_with
from cutaway.model.embeddings import Embedding

Baseline = str | int | Tensor
Baselines = Baseline | tuple[Baseline, ...]
Keep = Tensor | tuple[Tensor, ...] | None  # batch × seq for each input: True where the baseline is the input itself
COLOURS = {"black": 0, "white": 255}


@torch.no_grad()
def baseline_values(asked: Gradients, ends: Sequence[Tensor], given: Baselines, keep: Keep = None) -> list[Tensor]:
    """The values of the baseline where gradients are taken, in the shapes of the input's."""
    starts = _starts(asked, ends, given)
    if keep is None:
        return starts
    each = keep if isinstance(keep, tuple) else (keep,)
    if [one.shape for one in each] != [end.shape[:2] for end in ends]:
        shapes = " and ".join(str(tuple(end.shape[:2])) for end in ends)
        raise InputError(f"keep is {[tuple(one.shape) for one in each]}: True or False for each place, {shapes}")
    return [torch.where(one[..., None], end, start) for one, end, start in zip(each, ends, starts, strict=True)]


def _starts(asked: Gradients, ends: Sequence[Tensor], given: Baselines) -> list[Tensor]:
    each = given if isinstance(given, tuple) else (given,) * len(ends)
    if len(each) != len(ends):
        raise InputError(f"{len(each)} baselines for {len(ends)} inputs: give one for all, or one for each")
    taken = [one if isinstance(one, Tensor) and one.is_floating_point() else None for one in each]
    if all(one is not None for one in taken):
        return [_broadcast(one, end) for one, end in zip(taken, ends, strict=True) if one is not None]
    if any(one is not None for one in taken):
        raise InputError("one baseline is a tensor of numbers and the other is not: give both in the same way")
    if asked.reads_pictures:
        return _of_pictures(asked, ends, each[0])
    ids = asked.inputs[: len(each)]
    parts = list(asked.embeddings.values())
    vectors = [_of_tokens(asked, *of) for of in zip(parts, ids, each, strict=True)]
    if asked.at in (None, "tokens"):
        return vectors
    edits = {tap: replace_with(value) for tap, value in zip(asked.taps("tokens"), vectors, strict=True)}
    return asked.values(edits)


def _of_tokens(asked: Gradients, part: Any, ids: Tensor, one: Any) -> Tensor:
    assert isinstance(part, Embedding)
    matrix, scale = part.tokens.matrix, part.tokens.scale
    shape = (*ids.shape, matrix.shape[1])
    if isinstance(one, Tensor):
        if one.shape != ids.shape:
            raise InputError(f"a baseline of ids {tuple(one.shape)} for tokens {tuple(ids.shape)}: give one for each")
        return part.tokens(one.to(ids.device))
    if one == "zero":
        return matrix.new_zeros(shape)
    if one == "mean":
        return (matrix.mean(dim=0) * scale).expand(shape)
    if one == "pad":
        one = asked.model.config.pad_id
        if one is None:
            raise InputError("baseline=\"pad\": this model's config names no padding token (pad_id); give a token's id")
    if isinstance(one, str) or not 0 <= one < len(matrix):
        known = f"zero, pad, mean, or a token 0 … {len(matrix) - 1}"
        raise InputError(f"baseline={one!r} is not known: of tokens it may be {known}")
    return part.tokens(torch.full_like(ids, one))


def _of_pictures(asked: Gradients, ends: Sequence[Tensor], one: Any) -> list[Tensor]:
    pictures, numbers = asked.inputs[0], asked.model.config.to_dict()
    if one == "zero":
        if asked.at != "output":
            return [torch.zeros_like(end) for end in ends]
        return asked.values(dict.fromkeys(asked.taps("patches"), torch.zeros_like))
    if one == "mean":
        plain = pictures.mean(dim=(2, 3), keepdim=True).expand_as(pictures)
    elif isinstance(one, str) and one in COLOURS:
        return colour_values(asked, one, numbers["pixel_mean"] or (0.5,), numbers["pixel_std"] or (0.5,))
    else:
        raise InputError(f"baseline={one!r} is not known: of pictures it may be zero, black, white, mean, or a tensor")
    return asked.values(pictures=plain)


def colour_values(asked: Gradients, colour: str, mean: Sequence[float], std: Sequence[float]) -> list[Tensor]:
    """The values of an image of one colour, normalised with this mean and deviation, where gradients are taken."""
    bytes_ = np.full(asked.inputs[0].shape, COLOURS[colour], dtype=np.uint8)
    return asked.values(pictures=pixels_of(asked.model, bytes_, mean, std))


def _broadcast(given: Tensor, end: Tensor) -> Tensor:
    try:
        return given.to(end).expand_as(end)
    except RuntimeError:
        raise InputError(
            f"a baseline of shape {tuple(given.shape)} for values of shape {tuple(end.shape)}: it must broadcast"
        ) from None
