"""Jobs of many sizes for tiny models, and what they wrote."""

import torch
from helpers.tiny_models import TRANSLATORS, VOCAB, tiny

from cutaway.decoding import Hypothesis, Job
from cutaway.model.model import DecoderModel

START = 1
ENDS = list(range(5, 12))
#         prompt source limit: short after long, long after short, and both at once
SIZES = [(9, 2, 3), (1, 12, 11), (14, 5, 12), (1, 1, 1), (2, 7, 17), (1, 3, 8), (13, 9, 2), (5, 11, 9), (3, 4, 16)]


def jobs_for(name: str, sizes: list[tuple[int, int, int]] = SIZES) -> list[Job]:
    draw = torch.Generator().manual_seed(7)

    def ids(n: int) -> list[int]:
        return torch.randint(VOCAB, (n,), generator=draw).tolist()

    across = name in TRANSLATORS
    return [Job(prompt=[START, *ids(p - 1)], source=ids(s) if across else [], limit=n) for p, s, n in sizes]


def model_of(name: str) -> DecoderModel:
    """In single precision, with scores so close that beams overtake each other."""
    model = tiny(name, dtype=torch.float32)
    for parameter in model.decoder.parameters():
        parameter.data *= 0.7
    return model


def texts(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in row] for row in found]
