"""Tiny translators, and texts for them."""

import torch
from helpers.tiny_models import tiny

from cutaway.model.model import Model

PAD, START, END = 0, 1, 2


TEXTS = ["I ate an apple.", "Hi", "", "The quick brown fox jumps over it.", "naïve café", "Hi", "a b c d e f g"]


def translator(**changes) -> Model:
    ids = {"pad_id": PAD, "start_id": START, "end_ids": (END,), "vocab_size": 400, "max_len": 64}
    # tied, a random output repeats what it reads
    return tiny("transformer", dtype=torch.float32, **{**ids, "tied": False, "seed": 2, **changes})


def quick(**changes) -> Model:
    """A model that has little to say."""
    return translator(end_ids=(END, *range(3, 40)), **changes)
