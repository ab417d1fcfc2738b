"""Fills the blanks of a text, which is what BERT was trained to do: it sees the words on both sides of a [MASK].

    fill(model, tokenizer, "The [MASK] barked.").sentence        # 'The dog barked.'

A blank is written `[MASK]`, `<mask>` or `___`, whatever the model's tokenizer calls it. Several blanks are predicted at
the same time, each without knowing the others, as in training (Devlin et al. 2018, section 3.1).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.single_pass import Row, check_ready, check_room, rows_of, side_by_side
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

BLANK = re.compile(r"\[MASK\]|<mask>|_{3,}", re.IGNORECASE)
TASKS = ("masked_language_model", "pretrain")
PIECE = "##"  # WordPiece's mark of a piece that continues a word


@dataclass(frozen=True)
class Word:
    """One guess for a blank."""

    word: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text, the most likely words for each of its blanks, and the sentence with the best ones filled in."""

    text: str
    blanks: list[list[Word]]
    sentence: str


@checked
@torch.no_grad()
def fill(
    model: Model,
    tokenizer: Tokenizer,
    texts: str | list[str],
    *,
    k: int = 5,
    as_trained: bool = False,
    batch_tokens: int = 8192,
) -> Any:
    """The k most likely words for each blank: a `Filled` for a text, a list of them for a list of texts.

    `as_trained` puts special tokens around a text as `cutaway train` does, not as the tokenizer does.
    """
    if isinstance(texts, str):
        return fill(model, tokenizer, [texts], k=k, as_trained=as_trained, batch_tokens=batch_tokens)[0]
    rows = rows_with_blanks(model, tokenizer, texts, k, as_trained)
    words = words_of(model, tokenizer)
    guesses: list[list[list[Word]]] = [[] for _ in rows]
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        at = ids.eq(tokenizer.mask_id or 0)
        at = at if more["real"] is None else at & more["real"]
        scores = model.head(model.hidden(ids, **more)[at][None])[0]  # only at the blanks: a vocabulary is large
        check_scores(model, scores)
        of_blanks = likeliest_words(scores, words, k, tokenizer)
        for row, of_blank in zip(at.nonzero()[:, 0].tolist(), of_blanks, strict=True):
            guesses[chosen[row]].append(of_blank)
    return [Filled(text, of_text, _sentence(text, of_text)) for text, of_text in zip(texts, guesses, strict=True)]


def rows_with_blanks(model: Model, tokenizer: Tokenizer, texts: Sequence[str], k: int, as_trained: bool) -> list[Row]:
    """Tokenized texts, with this tokenizer's [MASK] for each blank; a text without a blank is refused."""
    check_ready(model)
    if model.config.task not in TASKS:
        raise InputError(
            f"a {model.config.family} model with task={model.config.task!r} cannot fill blanks: "
            f"use one with task={TASKS[0]!r}"
        )
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token: use one with [MASK] or <mask>")
    if k < 1:
        raise InputError(f"k={k} must be at least 1")
    mask = tokenizer.token(tokenizer.mask_id)
    for number, text in enumerate(texts):
        if not BLANK.search(text):
            raise InputError(f"text {number + 1} has no blank: write [MASK], <mask> or ___ where a word is missing")
    rows = rows_of(tokenizer, [BLANK.sub(lambda _: mask, text) for text in texts], None, as_trained=as_trained)
    check_room(model, rows, "shorten it")
    for number, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if row.ids.count(tokenizer.mask_id) != len(BLANK.findall(text)):
            raise InputError(f"text {number + 1}: the tokenizer does not read {mask!r} as a blank")
    return rows


def words_of(model: Model, tokenizer: Tokenizer) -> Bool[Tensor, " vocab"]:
    """Which ids are tokens of text: neither special tokens nor padding of the vocabulary."""
    words = torch.ones(model.config.to_dict()["vocab_size"], dtype=torch.bool, device=model.device)
    words[tokenizer.vocab_size :] = False  # a vocabulary may be padded to a round number
    words[list(tokenizer.special_ids().values())] = False
    return words


def likeliest_words(
    scores: Float[Tensor, "blank vocab"], words: Bool[Tensor, " vocab"], k: int, tokenizer: Tokenizer
) -> list[list[Word]]:
    """The k most likely words for each blank, with their probabilities among all tokens."""
    p = upcast(scores).softmax(dim=-1)
    best, ids = p.masked_fill(~words, -1.0).topk(min(k, int(words.sum())))
    return [
        [Word(_name(tokenizer, id), id, one) for one, id in zip(*of_blank, strict=True)]
        for of_blank in zip(best.tolist(), ids.tolist(), strict=True)
    ]


def _name(tokenizer: Tokenizer, id: int) -> str:
    text = tokenizer.decode([id])
    return text.strip() or ("⏎" if "\n" in text else tokenizer.token(id))


def _sentence(text: str, blanks: list[list[Word]]) -> str:
    """The text with the most likely word in each blank."""
    pieces = BLANK.split(text)
    sentence = pieces[0]
    for best, piece in zip((words[0].word for words in blanks), pieces[1:], strict=True):
        goes_on = best.startswith(PIECE) and len(best) > len(PIECE)
        sentence = (sentence.rstrip() + best.removeprefix(PIECE) if goes_on else sentence + best) + piece
    return sentence
