"""What a model may answer, and what its answers are called: tokens that may stand in a text, labels, a number."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.decoding.classify import FOLLOWS
from cutaway.decoding.fill import words_of
from cutaway.errors import InputError
from cutaway.inside.attribution.result import token_names
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

LABELS = ("classify", "regress", "next_sentence")  # tasks whose answers are labels


def label_names(model: Model) -> list[str]:
    """What a classifier's scores are called; one without names has numbers."""
    if model.config.task == "regress":
        return ["number"]
    names = FOLLOWS if model.config.task == "next_sentence" else model.config.labels
    return [str(name) for name in names or range(model.config.n_classes or 2)]


def token_text(tokenizer: Tokenizer | None, id: int) -> str:
    """What a token adds to a text; places that only pad the vocabulary have a number."""
    return f"<{id}>" if tokenizer is None or id >= tokenizer.vocab_size else token_names(tokenizer, [id])[0]


def answer_name(model: Model, tokenizer: Tokenizer | None) -> Callable[[int], str]:
    """What a token, or the number of a label, is called."""
    if model.config.task not in LABELS:
        return lambda id: token_text(tokenizer, id)
    return label_names(model).__getitem__


def may_answer(model: Model, tokenizer: Tokenizer | None, n: int) -> Bool[Tensor, " answer"]:
    """Which scores are of answers: all labels; of tokens those that may stand in a text."""
    if tokenizer is None or model.config.task in LABELS:
        return torch.ones(n, dtype=torch.bool, device=model.device)
    return words_of(model, tokenizer)


@torch.no_grad()
def answer_scores(
    model: Model, tokenizer: Tokenizer | None, inputs: Sequence[Tensor], more: Mapping[str, Any], at: Sequence[int] = ()
) -> Float[Tensor, "n answer"]:
    """The logits of what a model may answer at some positions of one row; −∞ for what it may not. A classifier answers
    once."""
    logits = upcast(model(*inputs, **more)[0])
    logits = logits[None] if logits.ndim == 1 else logits[list(at)]
    check_scores(model, logits)
    return logits.masked_fill(~may_answer(model, tokenizer, logits.shape[-1]), float("-inf"))


def one_token(tokenizer: Tokenizer, word: str, what: str = "the word") -> int:
    """A word as the one token that it is in a text: with a space before it, where the vocabulary tells that apart."""
    tried = [word] if word != word.strip() else [f" {word}", word]
    cut = [tokenizer.encode(spelled, special=False) for spelled in tried]
    for ids in cut:
        if len(ids) == 1 and ids[0] != tokenizer.unk_id:
            return ids[0]
    if not cut[0]:
        raise InputError(f"{what} {word!r} has no tokens: write a word")
    if len(cut[0]) == 1:
        raise InputError(f"{what} {word!r} is unknown to this vocabulary: choose another word")
    pieces = " ".join(f"«{piece}»" for piece in token_names(tokenizer, cut[0]))
    first = token_names(tokenizer, cut[0][:1])[0].strip()
    fix = f"try {first!r}" if first else "choose another word"
    raise InputError(f"{what} {word!r} is {len(cut[0])} tokens here, {pieces}, and one is asked for: {fix}")
