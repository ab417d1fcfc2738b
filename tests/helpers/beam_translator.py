"""A translator whose hypotheses are close, its sources, and the log-probability of a text."""

import torch
from helpers.tiny_models import some_ids, tiny
from torch import Tensor

from cutaway.model.model import Model

START = 1
STOPS = [False, True, "never"]


def translator(name: str = "transformer", **changes) -> Model:
    """With scores so close that beams overtake each other."""
    model = tiny(name, **{"dtype": torch.float32, "start_id": START, **changes})
    for parameter in model.decoder.parameters():
        parameter.data *= 0.7
    return model


def sources(lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return some_ids(len(lengths), max(lengths), seed=seed), real


def log_p(model: Model, source: Tensor, target: list[int]) -> float:
    """Of a target, in one pass and without a cache."""
    return log_ps(model, source, [target])[0]


def log_ps(model: Model, source: Tensor, targets: list[list[int]]) -> list[float]:
    """Of targets of one length."""
    read = torch.tensor([[START, *target[:-1]] for target in targets])
    with torch.no_grad():
        scores = model(source.expand(len(targets), -1), read).double().log_softmax(dim=-1)
    return scores.gather(2, torch.tensor(targets)[:, :, None]).sum(dim=(1, 2)).tolist()
