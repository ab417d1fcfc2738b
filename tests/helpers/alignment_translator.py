"""A tiny translator for alignments."""

import torch
from helpers.tiny_models import tiny

from cutaway.model.model import EncoderDecoderModel


def translator() -> EncoderDecoderModel:
    ids = {"pad_id": 0, "start_id": 1, "end_ids": (2,), "vocab_size": 400, "max_len": 64}
    return tiny("transformer", dtype=torch.float32, tied=False, **ids)
