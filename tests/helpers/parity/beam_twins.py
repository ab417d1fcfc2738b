"""Models that hesitate, here and in `transformers`, for beam search."""

from pathlib import Path

import torch
from helpers.parity.generating_twins import LAST_NORM
from helpers.parity.twins import Twins, draw, twins_of
from torch import Tensor
from transformers import GenerationConfig

from cutaway.checkpoints import load

N = 12


def twins_that_hesitate(model, folder: Path) -> Twins:
    """As the tests of greedy decoding have them, and with scores so close that beams overtake each other."""
    if model in LAST_NORM:
        theirs = model().eval()
        draw(theirs)
        with torch.no_grad():
            theirs.get_submodule(LAST_NORM[model]).weight.mul_(-0.3)
        theirs.save_pretrained(folder)
        return Twins(theirs, load(folder), folder)
    return twins_of(model(), folder)


def generated(twins: Twins, ids: Tensor, mask: Tensor, ends: list[int], beam: int, penalty: float, stop: bool | str):
    """What their library finds, without what it was given, and its scores; everything, the best first."""
    twins.theirs.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=N,
        num_beams=beam,
        num_return_sequences=beam,
        length_penalty=penalty,
        early_stopping=stop,
        eos_token_id=ends,
        pad_token_id=0,
        decoder_start_token_id=twins.ours.config.start_id,
    )
    found = twins.theirs.generate(ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True)
    read = 1 if twins.theirs.config.is_encoder_decoder else ids.shape[1]
    return found.sequences[:, read:], found.get("sequences_scores")


def trimmed(row: list[int], ends: list[int]) -> list[int]:
    """Up to the end, which stays."""
    return row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))]


def ends_of(twins: Twins, ids: Tensor, mask: Tensor) -> list[int]:
    """Two tokens that about half of all texts hold, so that some end early and some late."""
    free, _ = generated(twins, ids, mask, [53], 4, 1.0, False)
    share = {int(token): (free == token).any(dim=1).float().mean().item() for token in free.unique()}
    return sorted(share, key=lambda token: abs(share[token] - 0.5))[:2]
