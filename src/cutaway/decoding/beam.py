"""Beam search: keep the few likeliest beginnings instead of one, because a likely text may begin with an unlikely word.

    score(y) = log p(y | x) / |y|^length_penalty        |y| counts the tokens that were written, the end included

Every sentence has `beam` running beginnings. Each is continued by every token of the vocabulary; the likeliest `beam`
of all that do not end run on, and those that end (among the likeliest `beam` only) are kept aside, the best `beam` of
them by score. (Attention Is All You Need, section 6.1; the rules, to the letter, are those of `transformers.generate`.)

When is a sentence done? At its limit `n`, where what runs competes with what has ended, or as soon as `beam` texts have
ended and, by `early_stopping`,

    True      at once
    False     when the likeliest beginning, scored as if it ended now, is no better than the worst of them: a guess
    "never"   when it could not become better even if all that follows were certain: no guess

A beam of one is greedy decoding: it stops at the first end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.decoding.greedy import Hidden, Ids, Real, check, last_real
from cutaway.errors import InputError
from cutaway.model.cache import Cache
from cutaway.model.model import DecoderModel, EncoderDecoderModel

Limits = int | Sequence[int] | Int[Tensor, " sentence"]
EarlyStopping = bool | Literal["never"]
NEVER = float("-inf")  # the score of a place where no text stands
BLOCK = 32  # slots of the cache are looked at in blocks: less to read while texts are short
ASK_EVERY = 8  # on a GPU, "is everybody done?" makes the host wait; a few idle steps cost less


@dataclass(frozen=True)
class Hypothesis:
    """A text that was found, with the end token that closed it, if one did."""

    ids: list[int]
    score: float


def beam_translate(model: EncoderDecoderModel, source: Ids, **search: Any) -> list[list[int]]:
    """The best target that was found for each source; `search` are the options of `beams_translate`."""
    return [hypotheses[0].ids for hypotheses in beams_translate(model, source, **search)]


@torch.no_grad()
def beams_translate(
    model: EncoderDecoderModel,
    source: Ids,
    *,
    n: Limits,
    beam: int = 4,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    real: Real = None,
    start_id: int | None = None,
    end_ids: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """All targets that were found for each source, the best first; `n` limits their tokens, for all alike or each."""
    limits = _limits(n, len(source), beam)
    longest = int(limits.max())
    check(model, source, "translate", longest)
    start_id = model.config.start_id if start_id is None else start_id
    if start_id is None:
        raise InputError("this model does not say what a target begins with: give `start_id`")
    beams = Beams(limits.to(model.device), beam, _ends(model, end_ids), length_penalty, early_stopping)
    cache = model.new_memory_cache(model.encode(source, real), real, len(source) * beam, longest)
    first = torch.full((len(source) * beam, 1), start_id, device=source.device)
    hidden = model.decode(first, cache=cache.first(min(BLOCK, longest)))
    return _search(model, beams, hidden, cache, 1, lambda new, view: model.decode(new, cache=view))


@torch.no_grad()
def beam_search(
    model: DecoderModel,
    ids: Ids,
    *,
    n: Limits,
    beam: int = 4,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    real: Real = None,
    end_ids: Sequence[int] | None = None,
) -> list[list[int]]:
    """The best continuation that was found for each prompt, of a decoder by itself."""
    if isinstance(model, EncoderDecoderModel):
        raise InputError("this model reads a source and writes a target: use beam_translate")
    limits = _limits(n, len(ids), beam)
    longest = int(limits.max())
    check(model, ids, "language_model", longest)
    beams = Beams(limits.to(model.device), beam, _ends(model, end_ids), length_penalty, early_stopping)
    cache = model.new_cache(len(ids), ids.shape[1] + longest - 1)
    hidden = last_real(model.hidden(ids, real=real, cache=cache), real).repeat_interleave(beam, dim=0)
    cache = cache.spread(beam)  # a prompt is read once, and not by each beam
    found = _search(model, beams, hidden, cache, ids.shape[1], lambda new, view: model.hidden(new, cache=view))
    return [hypotheses[0].ids for hypotheses in found]


def _search(
    model: DecoderModel,
    beams: "Beams",
    hidden: Hidden,
    cache: Cache,
    read_before: int,
    read: Callable[[Ids, Cache], Hidden],
) -> list[list[Hypothesis]]:
    """From the last hidden states on: score, choose, let the cache follow the chosen, read them."""
    on_gpu = hidden.is_cuda
    for length in range(1, beams.longest + 1):
        logits = model.head(hidden[:, -1])
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
        rows, tokens = beams.advance(log_p.unflatten(0, (-1, beams.width)), length)
        if length == beams.longest or ((not on_gpu or length % ASK_EVERY == 0) and bool(beams.done.all())):
            break
        filled = read_before + length - 1
        view = cache.first(min(cache.max_len, -(-(filled + 1) // BLOCK) * BLOCK))
        view.reorder(rows)
        hidden = read(tokens[:, None], view)
    return beams.hypotheses()


class Beams:
    """What runs and what has ended, for every sentence: tensors (sentence beam …) that live on the model's device."""

    def __init__(
        self,
        limits: Int[Tensor, " sentence"],
        beam: int,
        ends: Int[Tensor, " end"],
        length_penalty: float,
        early_stopping: EarlyStopping,
    ) -> None:
        self.width, self.limits, self.longest, self.ends = beam, limits, int(limits.max()), ends
        self.length_penalty, self.early_stopping = length_penalty, True if beam == 1 else early_stopping
        shape = (len(limits), beam)
        self.tokens = torch.zeros(*shape, self.longest, dtype=torch.long, device=limits.device)
        self.scores = torch.full(shape, NEVER, device=limits.device)
        self.scores[:, 0] = 0.0  # all beams begin alike: one of them speaks for all
        self.ended_tokens, self.ended_scores = self.tokens.clone(), torch.full(shape, NEVER, device=limits.device)
        self.ended_lengths = torch.zeros(shape, dtype=torch.long, device=limits.device)
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=limits.device)

    def advance(
        self, log_p: Float[Tensor, "sentence beam vocab"], length: int
    ) -> tuple[Int[Tensor, " row"], Int[Tensor, " row"]]:
        """Writes token number `length`. Which row each beam goes on from, and the token that it has to read next."""
        vocab = log_p.shape[2]
        # So many that `beam` of them do not end, even if every beam's likeliest continuations are all the ends.
        n_candidates = min(max(2, 1 + len(self.ends)) * self.width, self.width * vocab)
        scores, index = (self.scores[:, :, None] + log_p).flatten(1).topk(n_candidates)
        parent, token = index // vocab, index % vocab
        tokens = _pick(self.tokens, parent)
        tokens[:, :, length - 1] = token
        at_limit = length >= self.limits
        ends = torch.isin(token, self.ends) | at_limit[:, None]
        self.scores, chosen = scores.masked_fill(ends, NEVER).topk(self.width)
        self._keep(scores, tokens, ends, length)
        self.done |= at_limit | self._nothing_to_hope(length)
        self.tokens = _pick(tokens, chosen)
        rows = parent.gather(1, chosen) + torch.arange(len(parent), device=parent.device)[:, None] * self.width
        return rows.flatten(), token.gather(1, chosen).flatten()

    def _keep(
        self,
        scores: Float[Tensor, "sentence candidate"],
        tokens: Int[Tensor, "sentence candidate length"],
        ends: Bool[Tensor, "sentence candidate"],
        length: int,
    ) -> None:
        """Puts texts that end aside, the best by score, unless their sentence is done."""
        ends = ends & ~self.done[:, None]
        ends[:, self.width :] = False  # the other candidates are spares for those that run on
        scores = (scores / length**self.length_penalty).masked_fill(~ends, NEVER)
        self.ended_scores, best = torch.cat([self.ended_scores, scores], dim=1).topk(self.width)
        self.ended_tokens = _pick(torch.cat([self.ended_tokens, tokens], dim=1), best)
        lengths = torch.cat([self.ended_lengths, torch.full_like(ends, length, dtype=torch.long)], dim=1)
        self.ended_lengths = lengths.gather(1, best)

    def _nothing_to_hope(self, length: int) -> Bool[Tensor, " sentence"]:
        """Whether what runs may be given up, by the rule of `early_stopping`."""
        likeliest, worst = self.scores[:, 0], self.ended_scores[:, -1]
        full = worst > NEVER
        if self.early_stopping is True:
            return full | (likeliest == NEVER)
        at_best: float | Tensor = length**self.length_penalty
        if self.early_stopping == "never" and self.length_penalty > 0:  # the longer, the milder
            at_best = self.limits**self.length_penalty
        return full & (likeliest / at_best <= worst) | (likeliest == NEVER)

    def hypotheses(self) -> list[list[Hypothesis]]:
        tokens, lengths, scores = (
            x.tolist() for x in (self.ended_tokens, self.ended_lengths, self.ended_scores)
        )  # now the host waits, once
        return [
            [Hypothesis(ids[:n], score) for ids, n, score in zip(*row, strict=True) if score > NEVER]
            for row in zip(tokens, lengths, scores, strict=True)
        ]


def _pick(
    tokens: Int[Tensor, "sentence some length"], which: Int[Tensor, "sentence others"]
) -> Int[Tensor, "sentence others length"]:
    return tokens.gather(1, which[:, :, None].expand(-1, -1, tokens.shape[2]))


def _ends(model: DecoderModel, end_ids: Sequence[int] | None) -> Int[Tensor, " end"]:
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    return torch.tensor(list(end_ids), dtype=torch.long, device=model.device)


def _limits(n: Limits, batch: int, beam: int) -> Int[Tensor, " sentence"]:
    if beam < 1:
        raise InputError(f"beam={beam}: at least one beginning is kept")
    each = torch.full((batch,), n) if isinstance(n, int) else torch.as_tensor(n)
    if each.shape != (batch,) or not batch or each.min() < 1:
        raise InputError(f"n={n}: a limit of at least 1 for all {batch} texts, or one for each")
    return each
