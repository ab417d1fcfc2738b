"""Coreference: heads that look from a pronoun to its antecedent, and whether the answer depends on them.

    The animal didn't cross the street because *it* was too tired.      the animal, not the street

An encoder reads the whole sentence at once. A decoder does not know at «it» whether «tired» or «wide» follows, so that
its heads are scored at the last word of the sentence (`where="end"`).

    found = coreference_heads(model, tokenizer, read_schemas([path]))
    found.prefers.best(5)        # the share of sentences in which a head looks more at the right candidate
    accuracy_without_heads(model, tokenizer, schemas, [head for head, _ in found.prefers.best(5)])

Chance is ½, and among hundreds of heads some are well above it by chance alone: find heads on some sentences, and test
them on others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.engine.engine import padded_ids
from cutaway.errors import InputError
from cutaway.evaluation.winograd import Schema, standing, winograd
from cutaway.evaluation.winograd_files import POSSESSIVE
from cutaway.inside.circuits.circuit_task import HEADS, circuit_nodes, node_place
from cutaway.inside.circuits.head_scores import HeadScores, attention_patterns
from cutaway.inside.patching.interventions import Ablate, intervene
from cutaway.inside.progress import Progress, counted_progress, no_progress, stages
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class CoreferenceHeads:
    """For each head: how often it looks more at the right candidate than at any other, and how much it looks there."""

    where: str
    prefers: HeadScores
    looks: HeadScores
    n: int
    skipped: int  # sentences that do not contain their pronoun and candidates word for word

    def to_dict(self) -> dict[str, Any]:
        scores = {name: getattr(self, name).to_dict() for name in ("prefers", "looks")}
        return {"where": self.where, **scores, "n": self.n, "skipped": self.skipped}


@dataclass(frozen=True)
class _Asked:
    ids: list[int]
    query: int
    candidates: list[list[int]]  # the tokens of each candidate, the right one first


@checked
@torch.no_grad()
def coreference_heads(
    model: Model,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    *,
    where: str | None = None,
    rows: int = 32,
    progress: Progress = no_progress,
) -> CoreferenceHeads:
    """Scores every head from the pronoun, or from the end, of each sentence; by default the end for a decoder.

    >>> coreference_heads(speaker, schema_words, schemas).prefers.best(1)
    """
    model = uncompiled(model)
    if isinstance(model, EncoderDecoderModel):
        raise InputError(
            "coreference is for models that read one text; the encoder of a translator is not supported yet"
        )
    side = "decoder" if hasattr(model, "decoder") else "encoder"
    where = ("end" if side == "decoder" else "pronoun") if where is None else where
    if where not in ("pronoun", "end"):
        raise InputError(f"where={where!r} is neither 'pronoun' nor 'end'")
    asked = [found for schema in schemas if (found := _read(tokenizer, schema, where)) is not None]
    if not asked:
        raise InputError(f"none of the {len(schemas)} schemas has its pronoun and its candidates in the sentence")
    wins: dict[str, Tensor] = {}
    most: dict[str, Tensor] = {}
    for start in counted_progress(range(0, len(asked), rows), progress):
        some = asked[start : start + rows]
        ids, real = padded_ids([each.ids for each in some], model.device)
        for part, pattern in attention_patterns(model, ids, parts=f"{side}.*.attention", real=real).items():
            for row, each in zip(pattern.double(), some, strict=True):
                right, other = _weights(row[:, each.query], each.candidates)
                wins[part] = wins.get(part, 0) + (right > other).double() + 0.5 * (right == other)
                most[part] = most.get(part, 0) + right
    prefers, looks = (
        HeadScores.of(name, {part: x / len(asked) for part, x in found.items()})
        for name, found in (("prefers", wins), ("looks", most))
    )
    return CoreferenceHeads(where, prefers, looks, len(asked), len(schemas) - len(asked))


def _weights(
    looked: Float[Tensor, "head key"], candidates: list[list[int]]
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """The weight on the right candidate, and on the best of the others."""
    right, *others = [looked[:, tokens].sum(dim=1) for tokens in candidates]
    return right, torch.stack(others).amax(dim=0)


def _read(tokenizer: Tokenizer, schema: Schema, where: str) -> _Asked | None:
    """The sentence with its pronoun, and the tokens of the pronoun and the candidates."""
    if not schema.pronoun:
        return None
    # «his» stands for «Tom's» and has no 's of its own; that of «it's» is the verb
    after = schema.after.removeprefix("'s") if schema.pronoun.lower() in POSSESSIVE else schema.after
    text = schema.before + schema.pronoun + after
    spans = [span for name in schema.candidates if (span := standing(text, name)) is not None]
    if len(spans) < len(schema.candidates):
        return None
    encoded = tokenizer.encode_full(text)
    end = len(text.rstrip(" .!?\"'”’"))
    span = (len(schema.before), len(schema.before) + len(schema.pronoun)) if where == "pronoun" else (end - 1, end)
    query, *tokens = (_tokens(encoded.offsets, each) for each in (span, *spans))
    if not query or not all(tokens):
        return None
    right = tokens[schema.right]
    return _Asked(encoded.ids, query[-1], [right, *(each for each in tokens if each is not right)])


def _tokens(offsets: Sequence[Span], span: Span) -> list[int]:
    return [i for i, (a, b) in enumerate(offsets) if a < span[1] and b > span[0]]


@dataclass(frozen=True)
class AccuracyWithoutHeads:
    """Accuracy on Winograd schemas: of the whole model, without some heads, and without as many random ones."""

    heads: tuple[str, ...]
    whole: float
    without: float
    without_random: tuple[float, ...]
    n: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@checked
def accuracy_without_heads(
    model: Model,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    heads: Iterable[str],
    *,
    draws: int = 3,
    seed: int = 0,
    progress: Progress = no_progress,
) -> AccuracyWithoutHeads:
    """Accuracy on Winograd schemas without some heads, and, `draws` times, without as many random ones.

    >>> accuracy_without_heads(speaker, schema_words, schemas, ["decoder.0.attention.1"], draws=1).without
    """
    model = uncompiled(model)
    heads = tuple(heads)
    draw = Random(seed)
    others = [node for node in circuit_nodes(model, [HEADS]) if node not in heads]
    if len(others) < len(heads):
        raise InputError(f"{len(heads)} heads, and only {len(others)} others to compare with: take at most half of all")

    by_chance = [draw.sample(others, len(heads)) for _ in range(draws)]
    found = []
    every = [(), heads, *by_chance]
    for gone, its in zip(every, stages(progress, *[1] * len(every)), strict=True):
        with intervene(model, [Ablate(node_place(node)) for node in gone]):
            found.append(winograd(model, tokenizer, schemas, progress=its).scores["accuracy"])
    whole, without, *random = found
    return AccuracyWithoutHeads(heads, whole, without, tuple(random), len(schemas))
