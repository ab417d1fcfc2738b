"""Filling blanks: the question that BERT was trained on. Every blank is a [MASK], and the model sees both its sides.

    fill(model, tokenizer, "The [MASK] barked.").sentence        # 'The dog barked.'

A blank is written `[MASK]`, `<mask>` or `___`, whatever this model's tokenizer calls it. Several blanks are guessed
side by side, each while the others are hidden too, as in training (Devlin et al. 2018, section 3.1).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.single_pass import Row, check_ready, check_room, rows_of, side_by_side
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

BLANK = re.compile(r"\[MASK\]|<mask>|_{3,}", re.IGNORECASE)
TASKS = ("masked_language_model", "pretrain")
PIECE = "##"  # WordPiece's mark of a piece that goes on with the word before it


@dataclass(frozen=True)
class Word:
    """One guess for a blank."""

    word: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text, the likeliest words for each of its blanks, and the sentence with the likeliest in place."""

    text: str
    blanks: list[list[Word]]
    sentence: str


@overload
def fill(model: Model, tokenizer: Tokenizer, texts: str, **options: Any) -> Filled: ...
@overload
def fill(model: Model, tokenizer: Tokenizer, texts: list[str], **options: Any) -> list[Filled]: ...
@checked
def fill(model: Model, tokenizer: Tokenizer, texts: str | list[str], **options: Any) -> Filled | list[Filled]:
    """The likeliest words for each blank of a text, or of each text in a list.

    `options`: `k` words for each blank (5); `as_trained` (special tokens as `cutaway train` sets them, not as the
    tokenizer does); `batch_tokens`.
    """
    return (
        _fill(model, tokenizer, [texts], **options)[0]
        if isinstance(texts, str)
        else _fill(model, tokenizer, texts, **options)
    )


@checked
@torch.no_grad()
def _fill(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    k: int = 5,
    as_trained: bool = False,
    batch_tokens: int = 8192,
) -> list[Filled]:
    rows = rows_with_blanks(model, tokenizer, texts, k, as_trained)
    words = writable(model, tokenizer)
    guesses: list[list[list[Word]]] = [[] for _ in rows]
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        at = ids.eq(tokenizer.mask_id or 0)
        at = at if more["real"] is None else at & more["real"]
        # the head is asked at the blanks only: a vocabulary is wide
        scores = model.head(model.hidden(ids, **more)[at][None])[0]
        check_scores(model, scores)
        for row, of_blank in zip(
            at.nonzero()[:, 0].tolist(), likeliest_words(scores, words, k, tokenizer), strict=True
        ):
            guesses[chosen[row]].append(of_blank)
    return [Filled(text, of_text, _sentence(text, of_text)) for text, of_text in zip(texts, guesses, strict=True)]


def rows_with_blanks(model: Model, tokenizer: Tokenizer, texts: Sequence[str], k: int, as_trained: bool) -> list[Row]:
    """Texts as rows, each blank a [MASK] of this tokenizer; one without a blank is refused."""
    check_ready(model)
    if model.config.task not in TASKS:
        raise InputError(
            f"a {model.config.family} model with task={model.config.task!r} has no head that fills blanks: "
            f"one with task={TASKS[0]!r} has"
        )
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no token for a blank: one with [MASK] or <mask> is needed")
    if k < 1:
        raise InputError(f"k={k}: at least one word is to be found")
    mask = tokenizer.token(tokenizer.mask_id)
    for number, text in enumerate(texts):
        if not BLANK.search(text):
            raise InputError(f"text {number + 1} has no blank: write [MASK], <mask> or ___ where a word is missing")
    rows = rows_of(tokenizer, [BLANK.sub(lambda _: mask, text) for text in texts], None, as_trained=as_trained)
    check_room(model, rows, "shorten it")
    for number, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if row.ids.count(tokenizer.mask_id) != len(BLANK.findall(text)):
            raise InputError(f"text {number + 1}: the tokenizer does not take {mask!r} for its blank")
    return rows


def writable(model: Model, tokenizer: Tokenizer) -> Bool[Tensor, " vocab"]:
    """The tokens that may stand in a text."""
    words = torch.ones(model.config.to_dict()["vocab_size"], dtype=torch.bool, device=model.device)
    words[tokenizer.vocab_size :] = False  # places that pad the vocabulary to a round number
    words[list(tokenizer.special_ids().values())] = False
    return words


def likeliest_words(
    scores: Float[Tensor, "blank vocab"], words: Bool[Tensor, " vocab"], k: int, tokenizer: Tokenizer
) -> list[list[Word]]:
    """Probabilities are those among all tokens, also of those that are no words and not listed."""
    p = scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(dim=-1)
    best, ids = p.masked_fill(~words, -1.0).topk(min(k, int(words.sum())))
    return [
        [Word(_name(tokenizer, id), id, one) for one, id in zip(*of_blank, strict=True)]
        for of_blank in zip(best.tolist(), ids.tolist(), strict=True)
    ]


def _name(tokenizer: Tokenizer, id: int) -> str:
    text = tokenizer.decode([id])
    return text.strip() or ("⏎" if "\n" in text else tokenizer.token(id))


def _sentence(text: str, blanks: list[list[Word]]) -> str:
    """The text as it was written, with the likeliest word in each blank."""
    pieces = BLANK.split(text)
    sentence = pieces[0]
    for best, piece in zip((words[0].word for words in blanks), pieces[1:], strict=True):
        goes_on = best.startswith(PIECE) and len(best) > len(PIECE)
        sentence = (sentence.rstrip() + best.removeprefix(PIECE) if goes_on else sentence + best) + piece
    return sentence
