"""What a run needs to know about its examples."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutaway.data.batches import Batch, Source
from cutaway.data.order import Indices, generator
from cutaway.objectives.objective import Arrays, Objective
from cutaway.tokens.tokenizer import Tokenizer
from cutaway.training.tasks import Task

Note = Callable[[str], None]  # for people

VALIDATE = 102  # the purpose of random numbers: the same tokens are masked in every evaluation


@dataclass
class TrainingData:
    """The examples, as batches, with the objective that turns them into inputs and targets."""

    task: Task
    objective: Objective
    train: Source
    valid: Source | None
    fingerprint: str  # of the data: a run is not resumed with other data
    tokenizer: Tokenizer | None = None
    model_settings: dict[str, Any] = field(default_factory=dict)  # vocabulary, classes, special tokens
    bytes_per_token: float | None = None  # of the validation text
    sample_sources: list[tuple[str, int | None]] = field(default_factory=list)  # sources to translate, and their tags
    notes: list[str] = field(default_factory=list)  # for people: examples that were left out

    @property
    def text_tokenizer(self) -> Tokenizer:
        assert self.tokenizer is not None
        return self.tokenizer

    def metrics(self) -> list[str]:
        """What is measured on the validation examples."""
        terms = list(self.objective.targets)
        found = ["loss", *(f"loss_{term}" for term in terms if len(terms) > 1)]
        if self.task.scores == "labels":
            from cutaway.evaluation.scores import scores_for

            found += scores_for(self.model_settings.get("n_classes"))
        if self.task.scores == "perplexity":
            found += ["perplexity"] + ["bits_per_byte"] * bool(self.bytes_per_token)
        return found

    def examples(self, n: int) -> Iterator[tuple[Batch, Arrays]]:
        """n validation examples, spread over all, always the same: as they are, and as the model reads them."""
        if self.valid is None:
            return
        for step, wanted in Counter(spread(n, self.valid.steps)).items():
            raw = self.valid(step)
            n_rows = len(next(iter(raw.values())))
            filled = np.flatnonzero(raw["example"] >= 0) if "example" in raw else np.arange(n_rows)
            rows = filled[:: -(-len(filled) // wanted)]
            arrays = self.objective.prepare(raw, generator(VALIDATE, step))
            yield _rows(raw, rows), _rows(arrays, rows)

    def length_notes(self, seq_len: int) -> Iterator[str]:
        """How many examples are too long."""
        for use, source in {"training": self.train, "validation": self.valid}.items():
            if n := getattr(source, "cut", 0):
                yield f"{n:,} {use} rows are longer than seq_len={seq_len} and are cut, of a pair the longer text first"
            if n := getattr(source, "too_long", 0):
                of = "cuts of " if getattr(source, "cuts", 1) > 1 else ""
                yield f"{n:,} {of}{use} pairs are longer than seq_len={seq_len} and were left out"


def _rows(batch: Batch, rows: Indices) -> Batch:
    return {name: values[rows] for name, values in batch.items()}


def spread(n: int, steps: int) -> list[int]:
    """n of these steps, evenly spaced: the first ones of a table have its shortest rows."""
    return [i * steps // n for i in range(n)]
