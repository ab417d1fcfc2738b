"""`generate` with a draft: the likeliest words, in fewer readings of the big model. `speculative` says how.

generate(model, tokenizer, "Once upon a time", draft=small)
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch

from cutaway.decoding.generate import Wishes, prompt_ids
from cutaway.decoding.speculative import speculative
from cutaway.decoding.spelling import Speller
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer

SHARED = ("max_tokens", "stop", "seed")  # wishes that a draft leaves free; a seed means nothing without drawing


@dataclass(frozen=True)
class Drafted:
    """One text, why it ended, and how well the draft guessed: see `Speculation`."""

    text: str
    ids: list[int]
    ended: Literal["end", "stop", "limit"]
    proposed: int
    accepted: int
    rounds: int


def write_drafted(
    model: DecoderModel, draft: DecoderModel, tokenizer: Tokenizer, prompts: Sequence[str], wishes: Wishes, k: int = 4
) -> list[Drafted]:
    """How each prompt goes on, by the model's own likeliest words, of which the draft guesses `k` at a time."""
    for field in fields(wishes):
        value = getattr(wishes, field.name)
        if field.name not in SHARED and value not in (field.default, []):
            raise InputError(
                f"{field.name}={value!r} and a draft: it guesses the model's likeliest words, which no rule changes "
                "and no beam keeps; leave out one of the two"
            )
    if draft.device != model.device:
        raise InputError(f"the draft is on {draft.device}, the model on {model.device}: move one of them")
    ends = set(model.config.end_ids or ())
    found = []
    for prompt in prompts:
        ids = prompt_ids(model, tokenizer, prompt)
        n = wishes.max_tokens if model.max_len is None else min(wishes.max_tokens, model.max_len - len(ids) + 1)
        said = speculative(model, draft, torch.tensor([ids], device=model.device), n=n, k=k)
        (new,) = said.texts
        speller = Speller(tokenizer, ids, ends=ends, stops=wishes.stops)
        speller.hear(new)
        text = speller.close()
        ended: Literal["end", "stop", "limit"] = "stop" if speller.stopped else "end" if new[-1] in ends else "limit"
        found.append(Drafted(text, new, ended, said.proposed, said.accepted, said.rounds))
    return found


def check_same_tokens(tokenizer: Tokenizer, theirs: Tokenizer | None) -> None:
    """A draft writes ids: they have to mean the same words to both. One without a tokenizer is taken at its size."""
    if theirs is None:
        return
    ours, other = (set(each.backend.get_vocab().items()) for each in (tokenizer, theirs))
    if differ := sorted(ours ^ other, key=lambda pair: pair[::-1]):
        whose = "model" if differ[0] in ours else "draft"
        raise InputError(
            f"{differ[0][0]!r} is token {differ[0][1]} of the {whose}'s tokenizer alone, and {len(differ) - 1:,} more "
            "differ: a draft needs the same tokenizer"
        )
