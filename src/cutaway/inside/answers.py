"""What a model can answer: tokens that may stand in a text, labels, or a number. And what its answers are called."""

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

LABELS: Mapping[str, Callable[[Any], Sequence[Any]]] = {  # task → the labels of a model with this config
    "classify": lambda config: config.labels or range(config.n_classes or 2),
    "next_sentence": lambda config: FOLLOWS,
    "regress": lambda config: ["number"],
}


def labels_of(model: Model) -> list[str] | None:
    """The names of a classifier's labels; None for a model that answers with tokens."""
    labels = LABELS.get(model.config.task)
    return None if labels is None else [str(name) for name in labels(model.config)]


def answers_number(model: Model) -> bool:
    """Whether the score itself is the answer (regression)."""
    return model.config.task == "regress"


def answer_name(model: Model, tokenizer: Tokenizer | None) -> Callable[[int], str]:
    """The name of an answer, by its token id or the number of its label."""
    labels = labels_of(model)
    if labels is not None:
        return labels.__getitem__
    return lambda id: f"<{id}>" if tokenizer is None or id >= tokenizer.vocab_size else token_names(tokenizer, [id])[0]


def answer_mask(model: Model, tokenizer: Tokenizer | None, n: int) -> Bool[Tensor, " answer"]:
    """True for the scores of possible answers: all labels, or the tokens that may stand in a text."""
    if tokenizer is None or labels_of(model) is not None:
        return torch.ones(n, dtype=torch.bool, device=model.device)
    return words_of(model, tokenizer)


@torch.no_grad()
def answer_scores(
    model: Model, tokenizer: Tokenizer | None, inputs: Sequence[Tensor], more: Mapping[str, Any], at: Sequence[int] = ()
) -> Float[Tensor, "n answer"]:
    """The logits at some positions of one row, −∞ where no answer is possible; a classifier has one position."""
    logits = upcast(model(*inputs, **more)[0])
    logits = logits[None] if logits.ndim == 1 else logits[list(at)]
    check_scores(model, logits)
    return logits.masked_fill(~answer_mask(model, tokenizer, logits.shape[-1]), float("-inf"))


def label_number(model: Model, label: str | int, what: str = "label") -> int:
    """The number of a label."""
    labels = labels_of(model) or []
    if str(label) not in labels:
        raise InputError(f"{what} {label!r} is not one of {', '.join(labels)}")
    return labels.index(str(label))


def single_token(tokenizer: Tokenizer, word: str, what: str = "the word") -> int:
    """The id of a word that is one token within a text: with a space before it, if the vocabulary has such tokens."""
    spellings = [word] if word != word.strip() else [f" {word}", word]
    encoded = [tokenizer.encode(spelling, special=False) for spelling in spellings]
    for ids in encoded:
        if len(ids) == 1 and ids[0] != tokenizer.unk_id:
            return ids[0]
    if not encoded[0]:
        raise InputError(f"{what} {word!r} has no tokens: write a word")
    if len(encoded[0]) == 1:
        raise InputError(f"{what} {word!r} is unknown to this vocabulary: choose another word")
    pieces = " ".join(f"«{piece}»" for piece in token_names(tokenizer, encoded[0]))
    first = token_names(tokenizer, encoded[0][:1])[0].strip()
    fix = f"try {first!r}" if first else "choose another word"
    raise InputError(f"{what} {word!r} is {len(encoded[0])} tokens here, {pieces}; it must be one: {fix}")
