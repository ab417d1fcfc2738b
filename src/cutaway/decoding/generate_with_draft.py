"""`generate` with a draft model: greedy decoding in fewer passes of the big model; see `speculative`.

generate(model, tokenizer, "Once upon a time", draft=small)
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from cutaway.decoding.detokenize import Speller
from cutaway.decoding.generate import Ended, ending, prompt_ids, room
from cutaway.decoding.options import GenerationOptions
from cutaway.decoding.search.speculative import speculative
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer

SHARED = ("max_tokens", "stop", "seed")  # the options that work with a draft; without sampling, a seed does nothing


@dataclass(frozen=True)
class Drafted:
    """One text, why it ended, and how many of the draft's tokens were accepted: see `Speculation`."""

    text: str
    ids: list[int]
    ended: Ended
    proposed: int
    accepted: int
    rounds: int


def write_drafted(
    model: DecoderModel,
    draft: DecoderModel,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    options: GenerationOptions,
    k: int = 4,
) -> list[Drafted]:
    """Continues each prompt by greedy decoding, for which the draft proposes `k` tokens at a time."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in SHARED and value not in (field.default, []):
            raise InputError(
                f"{field.name}={value!r} does not work with a draft, which is for greedy decoding without rules: leave "
                "out one of the two"
            )
    if draft.device != model.device:
        raise InputError(f"the draft is on {draft.device}, the model on {model.device}: move one of them")
    ends = set(model.config.end_ids or ())
    found = []
    for prompt in prompts:
        ids = prompt_ids(model, tokenizer, prompt)
        n = room(model, ids, options)
        speller = Speller(tokenizer, ids, ends=ends, stops=options.stops)

        def stopped(_: int, new: list[int], speller: Speller = speller) -> int | None:
            return speller.heard if speller.hear(new) else None

        prompt_row = torch.tensor([ids], device=model.device)
        said = speculative(model, draft, prompt_row, n=n, k=k, enough=stopped if options.stops else None)
        (new,) = said.texts
        speller.hear(new)
        text = speller.close()
        ended = ending(speller, new[-1] in ends, n < options.max_tokens)
        found.append(Drafted(text, new, ended, said.proposed, said.accepted, said.rounds))
    return found


def check_same_tokens(tokenizer: Tokenizer, theirs: Tokenizer | None) -> None:
    """Both models must have the same tokens; of a draft without a tokenizer only the size is checked later."""
    if theirs is None:
        return
    ours, other = (set(each.backend.get_vocab().items()) for each in (tokenizer, theirs))
    if differ := sorted(ours ^ other, key=lambda pair: pair[::-1]):
        whose = "model" if differ[0] in ours else "draft"
        raise InputError(
            f"{differ[0][0]!r} is token {differ[0][1]} of the {whose}'s tokenizer alone, and {len(differ) - 1:,} more "
            "differ: a draft needs the same tokenizer"
        )
