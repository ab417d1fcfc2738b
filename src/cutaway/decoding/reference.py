"""Decoding as a textbook has it: one text, no cache, no batch. Read this first.

`engine`, `search` and `beam` do the same for many texts at once and compute every token only once; the tests hold them
to what stands here.

    beam_search(model, [start], source=[5, 9, 2], width=4, limit=20, ends=[end])
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.model.model import DecoderModel


def next_token_log_p(
    model: DecoderModel, ids: Sequence[int], source: Sequence[int] | None = None
) -> Float[Tensor, " vocab"]:
    """log p of every token of the vocabulary as the next one after `ids`."""
    inputs = [ids] if source is None else [source, ids]
    with torch.no_grad():
        logits = model(*(torch.tensor([list(tokens)], device=model.device) for tokens in inputs))
    return logits[0, -1].log_softmax(dim=-1)


def greedy_search(
    model: DecoderModel,
    prompt: Sequence[int],
    *,
    limit: int,
    ends: Collection[int] = (),
    source: Sequence[int] | None = None,
) -> list[int]:
    """The likeliest token, again and again, until it is an end."""
    text: list[int] = []
    while len(text) < limit:
        text.append(int(next_token_log_p(model, [*prompt, *text], source).argmax()))
        if text[-1] in ends:
            break
    return text


def beam_search(
    model: DecoderModel,
    prompt: Sequence[int],
    *,
    width: int,
    limit: int,
    ends: Collection[int] = (),
    length_penalty: float = 1.0,
    source: Sequence[int] | None = None,
) -> list[tuple[float, list[int]]]:
    """The best `width` texts with their scores, log p(text) / length ^ length_penalty, the best first."""
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        candidates = [
            (log_p + next_log_p, [*text, token])
            for log_p, text in running
            for token, next_log_p in enumerate(next_token_log_p(model, [*prompt, *text], source).tolist())
        ]
        candidates.sort(reverse=True)
        # a text that ends is kept only if it is among the best `width`; all that go on fill the beam again
        ended += [(log_p / length**length_penalty, text) for log_p, text in candidates[:width] if text[-1] in ends]
        ended = sorted(ended, reverse=True)[:width]
        running = [(log_p, text) for log_p, text in candidates if text[-1] not in ends][:width]
        if len(ended) == width and running[0][0] / length**length_penalty <= ended[-1][0]:
            return ended  # what runs could catch up only by words that raise its score: a guess that it will not
    at_limit = [(log_p / limit**length_penalty, text) for log_p, text in candidates[:width] if text[-1] not in ends]
    return sorted(ended + at_limit, reverse=True)[:width]
