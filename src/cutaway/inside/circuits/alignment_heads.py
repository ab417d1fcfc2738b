"""Which cross-attention heads of a translator align words, and whether the model needs them.

A name or a number on both sides was copied, so that its source is known: `copies`. A head that looks there while the
word is written aligns (or copies); ablation shows whether the model needs it.

    found = alignment_heads(model, tokenizer, sources, targets, tag=tokenizer.tag_id("de"))
    found.copies.best(3)       # the share of copied words that a head finds, of those it could find
    found.lost_copied.best(3)  # nats per token of a copied word that are lost without the head

The translations are given: the decoder reads them (teacher forcing), as in `decoding.alignment`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.alignment import Alignment, align, members, word_spans
from cutaway.decoding.engine.engine import padded_ids
from cutaway.errors import InputError
from cutaway.inside.circuits.circuit_task import HEADS, circuit_nodes, node_place
from cutaway.inside.circuits.head_scores import HeadScores, attention_patterns
from cutaway.inside.patching.interventions import Ablate, intervene
from cutaway.inside.progress import Progress, counted_progress, no_progress
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.tap import uncompiled
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer import Encoded


@dataclass(frozen=True, eq=False)
class AlignmentHeads:
    """For each cross head: how well it aligns, 0 … 1, and the loss without it, in nats per token."""

    copies: HeadScores  # the share of copied words whose source it looks at most
    agrees: HeadScores  # the share of words for which it agrees with `decoding.alignment`
    lost: HeadScores  # without the head, for all tokens
    lost_copied: HeadScores  # for the tokens of copied words
    n_words: int
    n_copied: int
    log_p: float  # of the whole model, the mean over tokens
    log_p_copied: float

    def to_dict(self) -> dict[str, Any]:
        scores = {name: getattr(self, name).to_dict() for name in ("copies", "agrees", "lost", "lost_copied")}
        numbers = {name: getattr(self, name) for name in ("n_words", "n_copied", "log_p", "log_p_copied")}
        return {**scores, **numbers}


def copied_words(source: str, target: str) -> list[tuple[int, int]]:
    """(source word, target word) by number, for each word that is surely a copy: it occurs once on both sides, and has
    a digit, or a capital within a sentence and at least two letters."""
    sides = [[text[start:stop] for start, stop in word_spans(text)] for text in (source, target)]
    found = []
    for i, word in enumerate(sides[0]):
        named = word[0].isupper() and i > 0 and len(word) > 1 and sides[0][i - 1].isalnum()
        if (named or any(c.isdigit() for c in word)) and all(side.count(word) == 1 for side in sides):
            found.append((i, sides[1].index(word)))
    return found


@dataclass(frozen=True, eq=False)
class _Pair:
    """A source and its translation, and which token belongs to which word."""

    at: Float[Tensor, "source_word source_token"]
    looked: Float[Tensor, "target_word target_token"]
    copied: list[tuple[int, int]]
    best: list[int]  # for each target word, the source word of `decoding.alignment`

    @classmethod
    def of(cls, found: Alignment, read: Encoded, told: Encoded) -> "_Pair":
        return cls(
            members(found.source, found.source_words, read.offsets),
            members(found.target, found.target_words, told.offsets),
            copied_words(found.source, found.target),
            found.matrix.argmax(dim=1).tolist() if found.source_words else [],
        )

    @property
    def copied_tokens(self) -> Bool[Tensor, " target_token"]:
        return self.looked[[j for _, j in self.copied]].sum(dim=0) > 0


@checked
@torch.no_grad()
def alignment_heads(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tag: int | None = None,
    effects: bool = True,
    progress: Progress = no_progress,
) -> AlignmentHeads:
    """Scores every cross head on translations; `effects=False` leaves out the losses, which take a pass for each head.

    >>> alignment_heads(translator, its_tokenizer, ["In 1984 we met Anna."], ["1984 Anna"]).copies.best(1)
    """
    model = uncompiled(model)
    if not isinstance(model, EncoderDecoderModel):
        raise InputError("alignment heads are for translators: this model has no cross-attention")
    if not sources:
        raise InputError("there are no sentences: give some with names or numbers")
    aligned = align(model, tokenizer, sources, targets, tag=tag)
    texts = [
        [tokenizer.encode_full(text, special=False) for text in pair] for pair in zip(sources, targets, strict=True)
    ]
    inputs, more, said = _inputs(model, texts, tag)
    pairs = [_Pair.of(found, *tokens) for found, tokens in zip(aligned, texts, strict=True)]
    n_words, n_copied = sum(len(pair.best) for pair in pairs), sum(len(pair.copied) for pair in pairs)
    if not n_copied:
        raise InputError(f"no word of {len(pairs)} translations is surely a copy: give texts with names or numbers")
    patterns = attention_patterns(model, *inputs, parts="decoder.*.cross", **more)
    found = {part: _words_found(pattern, pairs, 0 if tag is None else 1) for part, pattern in patterns.items()}
    where = torch.zeros(said.shape, dtype=torch.bool)
    for row, pair in zip(where, pairs, strict=True):
        row[: pair.looked.shape[1]] = pair.copied_tokens
    heads = [node for node in circuit_nodes(model, [HEADS]) if ".cross." in node] if effects else []
    lost, log_p = _lost(model, inputs, more, said, where, heads, progress)
    return AlignmentHeads(
        HeadScores.of("copies", {part: copied / n_copied for part, (copied, _) in found.items()}),
        HeadScores.of("agrees", {part: agreed / n_words for part, (_, agreed) in found.items()}),
        HeadScores("lost", {head: x for head, (x, _) in lost.items()}),
        HeadScores("lost_copied", {head: x for head, (_, x) in lost.items()}),
        n_words,
        n_copied,
        *log_p,
    )


def _words_found(
    pattern: Float[Tensor, "batch head target source"], pairs: Sequence[_Pair], front: int
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """In how many copied words, and in how many words, each head looks most at the source word that is right."""
    copied, agreed = torch.zeros(pattern.shape[1]), torch.zeros(pattern.shape[1])
    for row, pair in zip(pattern.float().cpu(), pairs, strict=True):
        tokens = row[:, : pair.looked.shape[1], front : front + pair.at.shape[1]]
        best = (pair.looked @ tokens @ pair.at.T).argmax(dim=-1)
        for i, j in pair.copied:
            copied += best[:, j] == i
        agreed += (best == torch.tensor(pair.best)).sum(dim=1)
    return copied, agreed


def _inputs(
    model: EncoderDecoderModel, texts: Sequence[Sequence[Encoded]], tag: int | None
) -> tuple[tuple[Tensor, Tensor], dict[str, Any], Int[Tensor, "batch target"]]:
    assert model.config.end_ids is not None
    assert model.config.start_id is not None
    front, end, start = [] if tag is None else [tag], model.config.end_ids[0], model.config.start_id
    longest = max(max(len(front) + len(read.ids) + 1, len(told.ids)) for read, told in texts)
    if model.max_len is not None and longest > model.max_len:
        raise InputError(f"a text of {longest} tokens, and the model reads {model.max_len}: leave it out")
    source, source_real = padded_ids([[*front, *read.ids, end] for read, _ in texts], model.device)
    target, real = padded_ids([[start, *told.ids[:-1]] for _, told in texts], model.device)
    said, _ = padded_ids([told.ids or [start] for _, told in texts], model.device)
    return (source, target), {"source_real": source_real, "real": real}, said


def _lost(
    model: EncoderDecoderModel,
    inputs: tuple[Tensor, Tensor],
    more: dict[str, Any],
    said: Int[Tensor, "batch target"],
    copies: Bool[Tensor, "batch target"],
    heads: Sequence[str],
    progress: Progress,
) -> tuple[dict[str, tuple[float, float]], tuple[float, float]]:
    """The loss without each head, for all tokens and for copied ones; and the log p of the whole model."""
    real = more["real"] if more["real"] is not None else torch.ones_like(said, dtype=torch.bool)

    def log_p() -> tuple[float, float]:
        each = upcast(model(*inputs, **more)).log_softmax(dim=-1).gather(-1, said[..., None])[..., 0]
        return each[real].mean().item(), each[copies.to(each.device) & real].mean().item()

    whole = log_p()
    found = {}
    for head in counted_progress(heads, progress):
        with intervene(model, Ablate(node_place(head))):
            without = log_p()
        found[head] = (whole[0] - without[0], whole[1] - without[1])
    return found, whole
