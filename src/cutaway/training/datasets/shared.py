"""What all kinds of dataset share: what is found out about the examples, and the objective that a recipe asks for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.data.batches import Source
from cutaway.data.cache import Array
from cutaway.data.order import HELD_OUT, Indices, shuffled
from cutaway.errors import ConfigError
from cutaway.evaluation.scores import scores_for
from cutaway.objectives import Hiding, Labels, Masked, NextToken, Objective, Pretraining, SpanCorruption, Translation
from cutaway.tokens import Tokenizer
from cutaway.training.recipe import DataPart, Recipe

Say = Callable[[str], None]


@dataclass
class TrainingData:
    """Everything about the examples that a run needs."""

    objective: Objective
    train: Source
    valid: Source | None
    fingerprint: str  # of the data: with another one a run may not be resumed
    tokenizer: Tokenizer | None = None
    numbers: dict[str, Any] = field(default_factory=dict)  # of the model: vocabulary, classes, special tokens
    bytes_per_token: float | None = None  # of the validation text
    sample_source: list[tuple[str, int | None]] = field(default_factory=list)  # sources to translate, and their tags
    notes: list[str] = field(default_factory=list)  # what a person should know: examples left out

    def metrics(self) -> list[str]:
        """What `training.validation` finds on the validation examples."""
        terms = list(self.objective.targets)
        found = ["loss", *(f"loss_{term}" for term in terms if len(terms) > 1)]
        if "label" in terms:
            found += scores_for(self.numbers.get("n_classes"))
        if "next_token" in terms:
            found += ["perplexity"] + ["bits_per_byte"] * bool(self.bytes_per_token)
        return found


def check_lengths(seq_len: int, extra: int, least: int = 1) -> None:
    """Refuses rows in which special tokens leave no room for text: nothing could be learnt from them."""
    if seq_len < extra + least:
        many = f"{least} tokens" if least > 1 else "a token"
        raise ConfigError(f"data.seq_len={seq_len} leaves no room for {many} beside {extra} special ones: allow more")


def what_is_lost(dataset: TrainingData, seq_len: int) -> Iterator[str]:
    """How many examples are too long."""
    for use, source in {"training": dataset.train, "validation": dataset.valid}.items():
        if n := getattr(source, "cut", 0):
            yield f"{n:,} {use} rows are longer than seq_len={seq_len} and are cut, of a pair the longer text first"
        if n := getattr(source, "too_long", 0):
            of = "cuts of " if getattr(source, "cuts", 1) > 1 else ""
            yield f"{n:,} {of}{use} pairs are longer than seq_len={seq_len} and were left out"


def paths_of(recipe: Recipe, names: Iterable[str]) -> list[Path]:
    return [Path(recipe.data.root) / name for name in names]


def holds_out(d: DataPart) -> bool:
    """Whether part of the training examples is to measure with."""
    return not d.valid and bool(d.valid_share or d.valid_last)


def n_to_train_on(n: int, d: DataPart) -> int:
    """How many of n examples are left when the last ones are held out."""
    asked = d.valid_last or round(n * d.valid_share)
    if 0 < asked < n:
        return n - asked
    said = f"data.valid_last={d.valid_last}" if d.valid_last else f"data.valid_share={d.valid_share}"
    why = "none is left to train on" if asked > 0 else "none is held out to measure with"
    unit = "example" if n == 1 else "examples (characters, of running text)"
    raise ConfigError(f"{said} of {n:,} {unit}: {why}; bring more, or change that value (0: nothing is measured)")


def held_out(n: int, recipe: Recipe) -> tuple[Indices, Indices]:
    """The examples to train on, and those to measure with: the last `valid_last`, or a share from all over the file.

    Files are often sorted, by class or by length: their last share would be another kind of examples.
    """
    kept = n_to_train_on(n, recipe.data)
    every = np.arange(n)
    if not recipe.data.valid_last:
        every = shuffled(every, n, recipe.seed, HELD_OUT)
    return np.sort(every[:kept]), np.sort(every[kept:])


def check_classes(labels: Indices, kept: Indices, measured: Indices) -> None:
    """Refuses to measure with classes that were never shown: a file that is sorted by class ends in one of them."""
    unseen = np.setdiff1d(labels[measured], labels[kept])
    if len(unseen):
        raise ConfigError(
            f"class {unseen[0]} is in the held-out examples and not among those to train on; where a file is sorted by"
            " class, use data.valid_share, which takes examples from all over it, instead of data.valid_last"
        )


def refuse_one_answer(labels: Array, names: Sequence[str] | None, where: str) -> None:
    """Where every example has the same label there is nothing to learn, and every answer would be right."""
    if len(labels) and (labels == labels[0]).all():
        only = labels[0] if names is None else names[labels[0]]
        raise ConfigError(f"all labels in {where} are {only}: at least two different ones are needed to learn from")


def special_numbers(tokenizer: Tokenizer, *, starts: bool = True) -> dict[str, Any]:
    """What a model has to know about its tokens; `starts` where its sequences begin with <sos>, as windows do not."""
    numbers: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.pad_id}
    if starts and tokenizer.bos_id is not None:
        numbers["start_id"] = tokenizer.bos_id
    if tokenizer.eos_id is not None:
        numbers["end_ids"] = [tokenizer.eos_id]
    return numbers


def needed_tokens(tokenizer: Tokenizer, role: str, id: int | None) -> int:
    if id is None:
        raise ConfigError(f"this objective needs a tokenizer with a token for «{role}», and this one has none")
    return id


def objective_for(recipe: Recipe, tokenizer: Tokenizer) -> Objective:
    """The objective of a recipe that is about tokens."""
    o, d = recipe.objective, recipe.data
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    match o.kind:
        case "next_token":
            rows = d.format == "table"  # in a corpus of lines <eos> stands already
            starts = rows or d.split == "line"  # sequences of their own
            return NextToken(start_id=tokenizer.bos_id if starts else None, end_id=tokenizer.eos_id if rows else None)
        case "masked":
            return Masked(hiding_for(recipe, tokenizer), cls_id=cls_id, sep_id=sep_id)
        case "pretrain":
            return Pretraining(hiding_for(recipe, tokenizer), cls_id=cls_id, sep_id=sep_id)
        case "translate" | "spans":
            start_id = needed_tokens(tokenizer, "begins a sentence", tokenizer.bos_id)
            end_id = needed_tokens(tokenizer, "ends a sentence", tokenizer.eos_id)
            if o.kind == "spans":
                names = [f"<extra_id_{i}>" for i in range(100)]
                sentinels = [tokenizer.id(name) for name in names if name in tokenizer]
                return SpanCorruption(start_id=start_id, end_id=end_id, sentinels=sentinels, share=o.mask_share)
            return Translation(
                start_id=start_id, end_id=end_id, smoothing=o.smoothing, tagged=bool(recipe.data.directions),
                agree=o.agree,
            )  # fmt: skip
        case "classify" | "regress" | "tag":
            encoder = cls_id is not None
            hiding = hiding_for(recipe, tokenizer) if o.auxiliary and encoder else None
            return Labels(
                o.kind, cls_id=cls_id, sep_id=sep_id if encoder else tokenizer.eos_id, segments=encoder,
                smoothing=o.smoothing, auxiliary=o.auxiliary, hiding=hiding,
            )  # fmt: skip
    raise ConfigError(f"objective.kind={o.kind!r} is not about text")


def hiding_for(recipe: Recipe, tokenizer: Tokenizer) -> Hiding:
    continues = tuple(tokenizer.continues_word()) if recipe.objective.whole_words else None
    return Hiding(
        mask_id=needed_tokens(tokenizer, "hides a word", tokenizer.mask_id),
        vocab_size=tokenizer.vocab_size,
        special_ids=tuple(tokenizer.special_ids().values()),
        continues=continues,
        share=recipe.objective.mask_share,
    )
