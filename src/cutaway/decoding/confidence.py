"""How sure a language model was of each word that it generated, and what else it might have generated there.

A word's probability is the product of those of its tokens, log p(w) = Σ log p(token | all before it): the model's own
probabilities, before temperature and other rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cutaway.decoding.alignment import members, word_spans
from cutaway.decoding.detokenize import Speller
from cutaway.decoding.fill import Word, likeliest_words, words_of
from cutaway.decoding.generate import prompt_ids
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer


@dataclass(frozen=True)
class TokenConfidence:
    """A word of a text, its probability, and the most likely first tokens in its place."""

    text: str
    probability: float
    candidates: list[Word]


@torch.no_grad()
def confidence_of(
    model: DecoderModel, tokenizer: Tokenizer, prompt: str, written: Sequence[int], *, k: int = 5
) -> list[TokenConfidence]:
    """The words and punctuation marks of a text generated after a prompt; `written` are its tokens."""
    front, ends = prompt_ids(model, tokenizer, prompt), model.config.end_ids or ()
    ids = [id for id in written if id not in ends]
    if not ids:
        return []
    scores = model(torch.tensor([[*front, *ids[:-1]]], device=model.device))[0, len(front) - 1 :].float()
    check_scores(model, scores)
    each = scores.log_softmax(dim=-1).gather(1, torch.tensor(ids, device=model.device)[:, None])[:, 0].cpu()
    speller, spans = Speller(tokenizer, front), []
    for n in range(len(ids)):
        start = len(speller.said)
        speller.hear(ids[: n + 1])
        spans.append((start, len(speller.said)))
    text = speller.close()
    words = word_spans(text)
    table = members(text, words, spans)
    candidates = likeliest_words(scores, words_of(model, tokenizer), k, tokenizer)
    firsts = table.argmax(dim=1).tolist() if words else []
    return [
        TokenConfidence(text[a:b], probability, candidates[first])
        for (a, b), probability, first in zip(words, (table @ each).exp().tolist(), firsts, strict=True)
    ]
