"""The result of an attribution: how much each part of the input contributes to each output.

    found.scores            # output × input
    found.words(tokenizer)  # the same by words, where the tokens were pieces

Gradient methods distribute a number: the scores of the pieces of a word are added up. Attention methods give each
output a distribution over the inputs: the columns of an input word are added up, the rows of an output word averaged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.alignment import members, word_spans
from cutaway.decoding.detokenize import BYTE, LOST, Speller
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

METHODS = {
    "integrated_gradients": "integrated gradients",
    "gradient_x_input": "gradient × input",
    "attention_rollout": "attention rollout",
    "value_weighted": "value-weighted attention",
}
SHORT_NAMES = {
    "integrated": "integrated_gradients",
    "gradient": "gradient_x_input",
    "rollout": "attention_rollout",
    "value": "value_weighted",
}
ATTENTION_METHODS = ("attention_rollout", "value_weighted")  # each of their rows sums to 1


def method_name(method: str) -> str:
    """The full name of a method."""
    name = SHORT_NAMES.get(method, method)
    if name not in METHODS:
        raise InputError(f"method={method!r} is not one of {', '.join(METHODS)}")
    return name


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each input contributes to each output, for one row of a batch."""

    method: str
    scores: Float[Tensor, "output input"]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    total: Float[Tensor, " output"]  # the metric; for attention, the sum of each row
    of_baseline: Float[Tensor, " output"] | None = None  # the metric of the baseline
    error: float | None = None  # |Σ scores − (total − of_baseline)|, relative to the largest difference
    steps: int | None = None
    parts: tuple[int, ...] = ()  # number of inputs in the source, and in the target so far
    shape: tuple[int, int] | None = None  # for an image: rows and columns of patches or pixels
    input_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] | None = None

    @property
    def error_note(self) -> str:
        """How far the sum of integrated gradients is off; empty for other methods."""
        if self.error is None:
            return ""
        share = f"up to {ceil(100 * self.error)}%" if self.error < 10 else "more than ten times"
        return f"{self.steps} step{'' if self.steps == 1 else 's'}; sums are off by {share} of the largest"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "method": self.method,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "scores": self.scores.tolist(),
            "total": self.total.tolist(),
            "of_baseline": None if self.of_baseline is None else self.of_baseline.tolist(),
            "error": self.error,
            "steps": self.steps,
            "parts": list(self.parts),
            "shape": None if self.shape is None else list(self.shape),
        }

    def words(self, tokenizer: Tokenizer) -> "Attribution":
        """The same by words instead of tokens; special tokens stay separate."""
        if self.input_ids is None:
            raise InputError("these inputs are not tokens: only the attribution of a text has words")
        start = 0
        parts: list[int] = []
        names: list[str] = []
        tables: list[Tensor] = []
        for n in self.parts or (len(self.input_ids),):
            some, table = _grouped(tokenizer, self.input_ids[start : start + n])
            start, names = start + n, names + some
            parts.append(len(some))
            tables.append(table)
        at = torch.block_diag(*tables).to(self.scores)
        changes: dict[str, Any] = {"scores": self.scores @ at.T, "inputs": tuple(names), "parts": tuple(parts)}
        if self.output_ids is not None:
            outputs, of = _grouped(tokenizer, self.output_ids)
            of = of.to(self.scores)
            if self.method in ATTENTION_METHODS:
                of = of / of.sum(dim=1, keepdim=True)
            base = None if self.of_baseline is None else of @ self.of_baseline
            changes |= {"scores": of @ changes["scores"], "outputs": tuple(outputs), "of_baseline": base}
            changes["total"] = of @ self.total
        return replace(self, **changes, input_ids=None, output_ids=None)


def token_names(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, ...]:
    """The text that each token adds; a special token has its name, part of a character is �.

    >>> token_names(tokenizer, tokenizer.encode("the cat"))
    """
    return tuple(
        _named(tokenizer, id, text[a:b])
        for some, special in _runs(tokenizer, ids)
        for text, spans in [("", [(0, 0)] * len(some)) if special else _spelled(tokenizer, some)]
        for id, (a, b) in zip(some, spans, strict=True)
    )


def _named(tokenizer: Tokenizer, id: int, added: str) -> str:
    """Tokens that are parts of one character are shown as each would be alone, not as raw bytes."""
    alone = tokenizer.decode([id])
    if LOST in alone and not BYTE.fullmatch(tokenizer.token(id)):
        return alone
    return added or tokenizer.token(id)


def _grouped(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[list[str], Float[Tensor, "word token"]]:
    """The words of some tokens, and which token belongs to which word."""
    names: list[str] = []
    tables = []
    for some, special in _runs(tokenizer, ids):
        text, spans = ("", []) if special else _spelled(tokenizer, some)
        words = word_spans(text)
        names += [text[a:b] for a, b in words] or [tokenizer.token(id) for id in some]
        tables.append(members(text, words, spans) if words else torch.eye(len(some)))
    return names, torch.block_diag(*tables) if tables else torch.zeros(0, 0)


def _runs(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[tuple[list[int], bool]]:
    """Runs of ordinary tokens, and the special tokens between them (True)."""
    special, some = set(tokenizer.special_ids().values()), list[int]()
    for id in ids:
        if id in special:
            if some:
                yield some, False
            yield [id], True
            some = []
        else:
            some.append(id)
    if some:
        yield some, False


def _spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """A text, and the characters [start, stop) that each of its tokens added."""
    speller, spans = Speller(tokenizer, []), []
    for n in range(len(ids)):
        start = len(speller.said)
        speller.hear(ids[: n + 1])
        spans.append((start, len(speller.said)))
    return speller.close(), spans
