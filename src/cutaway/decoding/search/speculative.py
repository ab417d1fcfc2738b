"""Speculative decoding: a small model guesses a few tokens ahead, and the big one checks them all in one reading.

    speculative(model, draft, ids, n=100).texts          # what greedy(model, ids, n=100) writes, in fewer readings

Reading five tokens at once costs a big model hardly more than reading one, because its time goes into fetching weights.
Of the `k` tokens that the draft proposes, those up to the first that the model would not have written itself are
accepted, and the model's own next token comes with them for nothing: every round writes between 1 and k + 1 tokens. The
draft decides how fast the text comes, never what it says (Leviathan et al. 2023, for the likeliest token).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.search.greedy import Ids, Real, check_prompt
from cutaway.decoding.search.search import gaps, move_up
from cutaway.errors import InputError
from cutaway.model.cache import Cache
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel, EncoderDecoderModel

Texts = Int[Tensor, "batch place"]
Lengths = Int[Tensor, " batch"]
Hidden = Float[Tensor, "batch seq d_model"]
Source = Int[Tensor, "batch source"] | None
SourceReal = Bool[Tensor, "batch source"] | None


@dataclass(frozen=True)
class Speculation:
    """The texts, each with the end token that closed it, and how well the draft guessed."""

    texts: list[list[int]]
    proposed: int  # tokens that the draft guessed and the model read
    accepted: int  # those that the model would have written itself
    rounds: int  # readings of the model, that of the prompts not counted


@checked
@torch.no_grad()
def speculative(
    model: DecoderModel,
    draft: DecoderModel,
    ids: Ids,
    *,
    n: int,
    k: int = 4,
    real: Real = None,
    source: Source = None,
    source_real: SourceReal = None,
    end_ids: Sequence[int] | None = None,
    enough: Callable[[int, list[int]], int | None] | None = None,
) -> Speculation:
    """At most `n` new tokens for each prompt: the model's own greedy ones. Those of a translator are start tokens.

    `enough` is told, after each round, the number of a prompt and what is written behind it by now: it says after how
    many of those tokens the text ends, or None if it goes on.
    """
    _check(model, draft, ids, n, k, source)
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    begun = [len(ids[0])] * len(ids) if real is None else real.sum(dim=1).tolist()
    if not min(begun):
        raise InputError(f"text {begun.index(0) + 1} has an empty prompt: give at least one token")
    slots = ids.shape[1] + n + k
    texts = torch.zeros(len(ids), slots, dtype=torch.long, device=ids.device)
    for row, prompt in enumerate(ids if real is None else [ids[row, its] for row, its in enumerate(real)]):
        texts[row, : len(prompt)] = prompt
    lengths = torch.tensor(begun, device=ids.device)
    big, small = (_Reader(each, slots, len(ids), source, source_real) for each in (model, draft))
    if max(begun) > 1:
        big.read(texts, lengths - 1)
    whose = list(range(len(ids)))  # the prompt of each row
    done: dict[int, list[int]] = {}
    proposed = accepted = rounds = 0
    while whose:
        guesses, right = _round(big, small, texts[: len(whose)], lengths[: len(whose)], k)
        proposed, accepted, rounds = proposed + guesses * len(whose), accepted + int(right.sum()), rounds + 1
        gone = []
        for row in range(len(whose)):
            text = _until_end(texts[row, begun[whose[row]] : lengths[row]].tolist()[:n], end_ids)
            last_one = None if enough is None else enough(whose[row], text)
            if last_one is not None or len(text) == n or text[-1] in end_ids:
                done[whose[row]] = text[:last_one]
                gone.append(row)
        rows, to = gaps(len(whose), gone)
        if rows:
            texts[to], lengths[to] = texts[rows], lengths[rows]
            big.cache.move(rows, to)
            small.cache.move(rows, to)
            move_up(whose, rows, to)
        del whose[len(whose) - len(gone) :]
    return Speculation([done[row] for row in range(len(ids))], proposed, accepted, rounds)


class _Reader:
    """A model, and what it has read of the text in each row."""

    def __init__(self, model: DecoderModel, slots: int, rows: int, source: Source, source_real: SourceReal) -> None:
        self.model = model
        self.cache: Cache = model.new_cache(rows, 1, slots=slots)
        if isinstance(model, EncoderDecoderModel):
            assert source is not None
            self.cache = model.with_memory(self.cache, source.shape[1])
            model.remember(self.cache, model.encode(source, source_real), source_real)

    def room(self, lengths: Lengths) -> int:
        """How many tokens more fit behind the longest text."""
        return sys.maxsize if self.model.max_len is None else self.model.max_len - int(lengths.max())

    def read(self, texts: Texts, lengths: Lengths) -> Hidden:
        """Reads on, up to these lengths. The hidden states of what is new to it, padded on the right."""
        cache = self.cache.rows(0, len(texts))
        unread = lengths - cache.lengths
        along = torch.arange(int(unread.max()), device=texts.device)[None]
        real = None if bool((unread == unread[0]).all()) else along < unread[:, None]
        ids = texts.gather(1, (cache.lengths[:, None] + along).clamp(max=texts.shape[1] - 1))
        if isinstance(self.model, EncoderDecoderModel):
            return self.model.decode(ids, real=real, cache=cache)
        return self.model.hidden(ids, real=real, cache=cache)

    def likeliest(self, texts: Texts, lengths: Lengths) -> Int[Tensor, "batch 1"]:
        """The token to follow texts of these lengths."""
        last = lengths - self.cache.lengths[: len(texts)] - 1
        hidden = self.read(texts, lengths)
        return self.model.head(hidden[torch.arange(len(last), device=last.device), last][:, None]).argmax(dim=-1)

    def forget(self, lengths: Lengths) -> None:
        """What it has read behind these lengths."""
        self.cache.rows(0, len(lengths)).crop(lengths)


def _round(big: _Reader, small: _Reader, texts: Texts, lengths: Lengths, k: int) -> tuple[int, Lengths]:
    """Guesses, reads and corrects. Texts and lengths grow; how many were guessed, and how many of them right."""
    k = max(0, min(k, big.room(lengths), small.room(lengths)))
    for i in range(k):
        texts.scatter_(1, lengths[:, None] + i, small.likeliest(texts, lengths + i))
    scores = big.model.head(big.read(texts, lengths + k))  # after its last token, and after each guess
    check_scores(big.model, scores)
    own = scores.argmax(dim=-1)
    guessed = texts.gather(1, lengths[:, None] + torch.arange(k, device=texts.device))
    right = (own[:, :k] == guessed).long().cumprod(dim=1).sum(dim=1)
    texts.scatter_(1, (lengths + right)[:, None], own.gather(1, right[:, None]))
    for reader in (big, small):
        reader.forget(lengths + right)
    lengths += right + 1
    return k, right


def _until_end(text: list[int], ends: Sequence[int]) -> list[int]:
    return text[: next((i + 1 for i, token in enumerate(text) if token in ends), len(text))]


def _check(model: DecoderModel, draft: DecoderModel, ids: Tensor, n: int, k: int, source: Tensor | None) -> None:
    if isinstance(model, EncoderDecoderModel) != isinstance(draft, EncoderDecoderModel):
        raise InputError("of model and draft one reads a source and the other does not: give two of a kind")
    across = isinstance(model, EncoderDecoderModel)
    if across != (source is not None):
        raise InputError("this model reads a source: give `source`" if across else "this model reads no source")
    task = "translate" if across else "language_model"
    check_prompt(model, ids, task, n + ids.shape[1] - 1 if across and n > 0 else n)
    check_prompt(draft, ids[:, :1], task, 1)
    ours, theirs = (getattr(each.config, "vocab_size", 0) for each in (model, draft))
    if ours != theirs:
        raise InputError(f"the draft has vocab_size={theirs}, the model {ours}: both must share one vocabulary")
    if k < 0:
        raise InputError(f"k={k}: the draft guesses 0 tokens or more")
