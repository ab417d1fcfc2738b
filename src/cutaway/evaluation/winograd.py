"""Winograd schemas: whom or what does the pronoun mean? (Levesque, Davis & Morgenstern 2012.)

    The trophy doesn't fit into the brown suitcase because ___ is too large.     the trophy, the suitcase

    report = evaluate(model, tokenizer, [Schema("The trophy … because ", " is too large.", ("the trophy", …), 0), …])

Each candidate takes the pronoun's place, and the reading that the model finds likelier is its answer.

    partial   a language model: log p of what stands behind the candidate, given all before it (Trinh & Le 2018). Both
              readings are scored by the very same tokens, so neither a candidate's length nor its rarity counts
    full      log p of the whole sentence
    blanks    a model that fills blanks: all tokens of the candidate hidden at once, the mean of their log p (Kocijan
              et al. 2019); candidates differ in their number of tokens

Equally likely readings share the point, so that a model that knows nothing gets 1/2 of a schema with two candidates.
The same stands before a sentence as for minimal pairs (`evaluation.sentence_log_p`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.decoding.single_pass import Row, check_room, side_by_side, surrounded
from cutaway.errors import InputError
from cutaway.evaluation import bootstrap
from cutaway.evaluation.options import EvaluationOptions
from cutaway.evaluation.report import ItemReport
from cutaway.evaluation.sentence_log_p import (
    BATCH_TOKENS,
    MASKED,
    beginning,
    check_language_model,
    pair_numbers,
    rows_behind,
    shown_beginning,
    token_log_p,
)
from cutaway.model.heads import PretrainingHead
from cutaway.model.model import DecoderModel, Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

SIGNATURES = {
    "partial": "partial: log p of what stands behind the candidate (Trinh & Le 2018)",
    "full": "full: log p of the whole sentence",
    "blanks": "blanks: mean log p of the candidate's tokens, all hidden at once (Kocijan et al. 2019)",
}
SMALL = re.compile(r"^(The|A|An|My|Your|His|Her|Its|Our|Their|This|That|These|Those|Some|Any|All)(?= )")
Scores = list[list[float]]  # of each schema, one for each candidate


@dataclass(frozen=True)
class Schema:
    """A sentence without its pronoun, who may be meant, and the number of the one who is."""

    before: str
    after: str
    candidates: tuple[str, ...]
    right: int
    pronoun: str = field(default="", compare=False)  # what stood there; "" where the file does not say

    def spelled(self, candidate: int) -> str:
        """A candidate as it is written in the pronoun's place: «The» has a capital only where a sentence begins."""
        name = self.candidates[candidate]
        if re.search(r"(^|[.!?]|[.!?][\"'”’])\s*$", self.before):
            return name[:1].upper() + name[1:]
        return SMALL.sub(lambda found: found[0].lower(), name)

    def reading(self, candidate: int) -> str:
        """The sentence with a candidate in the pronoun's place."""
        return self.before + self.spelled(candidate) + self.after


def standing(text: str, name: str) -> tuple[int, int] | None:
    """Where a name first stands in a text as whole words, whatever its case: Ann does not stand in Joanna."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
    return found and found.span()


@with_options
def winograd(
    model: Model,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> ItemReport:
    """The share of the pronouns that are resolved correctly."""
    if not schemas:
        raise InputError("no schemas, no score")
    masked = model.config.task in MASKED
    found: dict[str, Scores]
    if masked:
        tokens = options.batch_tokens or BATCH_TOKENS
        blanks = readings_with_blanks(
            model, tokenizer, schemas, as_trained=options.as_trained, batch_tokens=tokens, progress=progress
        )
        found, behind = {"blanks": blanks}, {}
    else:
        check_language_model(model)
        assert isinstance(model, DecoderModel)
        found = readings(model, tokenizer, schemas, before=options.before, start=options.start, progress=progress)
        behind = {"behind": shown_beginning(model, tokenizer, options)}
    names = {way: "accuracy" if number == 0 else f"accuracy_{way}" for number, way in enumerate(found)}
    points = {names[way]: np.array(list(map(_points, scores, schemas))) for way, scores in found.items()}
    first = next(iter(found))
    return ItemReport(
        "winograd",
        len(schemas),
        {name: float(each.mean()) for name, each in points.items()},
        bootstrap.intervals({name: bootstrap.mean_of(each) for name, each in points.items()}, len(schemas), options),
        {names[way]: SIGNATURES[way] for way in found},
        settings={
            **behind,
            "ties": sum(len(set(scores)) == 1 for scores in found[first]),
        },
        items=tuple(
            {
                "sentence": f"{schema.before}___{schema.after}",
                "candidates": list(schema.candidates),
                "right": schema.right,
                **{way: scores[number] for way, scores in found.items()},
            }
            for number, schema in enumerate(schemas)
        ),
    )


@torch.no_grad()
def readings(
    model: DecoderModel,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    *,
    before: str | None = None,
    start: bool = True,
    progress: Progress = no_progress,
) -> dict[str, Scores]:
    """The partial and the full score of every reading, from one pass; options as for `log_p` of sentences."""
    special, before = beginning(model, tokenizer, before, start)
    texts = [schema.reading(n) for schema in schemas for n in range(len(schema.candidates))]
    rows, firsts = rows_behind(model, tokenizer, texts, special, before)
    borders = iter(_border(tokenizer, schema, n, before) for schema in schemas for n in range(len(schema.candidates)))
    ends, at = [], 0
    for schema in schemas:
        some = rows[at : at + len(schema.candidates)]
        at += len(some)
        behind = min(_same_end(some), *(len(row) - len(special) - next(borders) for row in some))
        ends += [len(row) - behind for row in some]
    end = torch.tensor(ends, device=model.device)
    full, tail = (torch.zeros(len(rows), dtype=torch.float64, device=model.device) for _ in range(2))
    for row, place, each in token_log_p(model, rows, firsts, progress):
        full.index_add_(0, row, each)
        tail.index_add_(0, row, each * (place >= end[row]))
    return {"partial": _by_schema(model, schemas, tail), "full": _by_schema(model, schemas, full)}


@torch.no_grad()
def readings_with_blanks(
    model: Model,
    tokenizer: Tokenizer,
    schemas: Sequence[Schema],
    *,
    as_trained: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress = no_progress,
) -> Scores:
    """The mean log p of every candidate's tokens, all of them hidden at once."""
    if tokenizer.mask_id is None:
        raise InputError("this tokenizer has no mask token: use a model with one")
    rows, hidden = [], []
    for schema in schemas:
        for number in range(len(schema.candidates)):
            text, start = schema.reading(number), len(schema.before)
            encoded = tokenizer.encode_full(text, special=False)
            row, front, _ = surrounded(tokenizer, [encoded], None, as_trained)
            stop = start + len(schema.spelled(number))
            places = [front + i for i, (a, b) in enumerate(encoded.offsets) if a < stop and b > start]
            if not places:
                raise InputError(f"the candidate {schema.candidates[number]!r} has no token")
            masked = [tokenizer.mask_id if i in places else id for i, id in enumerate(row.ids)]
            rows.append(Row(masked, row.segments))
            hidden.append([(place, row.ids[place]) for place in places])
    check_room(model, rows, "shorten it")
    head = model.head.masked if isinstance(model.head, PretrainingHead) else model.head
    found, done = torch.zeros(len(rows), dtype=torch.float64, device=model.device), 0
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        asked = [(at, place, id, i) for at, i in enumerate(chosen) for place, id in hidden[i]]
        at, place, target, row_of = torch.tensor(asked, device=model.device).unbind(1)
        logits = head(model.hidden(ids, **more)[at, place][None])[0]
        log_p = upcast(logits).log_softmax(dim=-1)
        found.index_add_(0, row_of, log_p.gather(1, target[:, None])[:, 0].double())
        done += len(chosen)
        progress(done, len(rows))
    lengths = torch.tensor([len(each) for each in hidden], device=model.device)
    return _by_schema(model, schemas, found / lengths)


# --- parts ------------------------------------------------------------------------------------------------------------


def _border(tokenizer: Tokenizer, schema: Schema, candidate: int, before: str) -> int:
    """How many tokens of a reading, with what stands before it, reach no further than the candidate."""
    stop = len(before) + len(schema.before) + len(schema.spelled(candidate))
    offsets = tokenizer.encoding(before + schema.reading(candidate), special=False).offsets
    return sum(end <= stop for _, end in offsets)


def _same_end(rows: Sequence[Sequence[int]]) -> int:
    """The number of tokens that all rows have in common at the end."""
    n = 0
    while all(len(row) > n and row[-1 - n] == rows[0][-1 - n] for row in rows):
        n += 1
        if n == min(map(len, rows)):
            break
    return n


def _points(scores: Sequence[float], schema: Schema) -> float:
    best = [number for number, score in enumerate(scores) if score == max(scores)]
    return (schema.right in best) / len(best)


def _by_schema(model: Model, schemas: Sequence[Schema], found: Tensor) -> Scores:
    flat = iter(pair_numbers(model, found).tolist())
    return [[next(flat) for _ in schema.candidates] for schema in schemas]
