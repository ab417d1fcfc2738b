"""The rungs of the ladder: what each is, what it has learnt, and what that took.

    order-0 … order-5    n-grams (Kneser–Ney) that look at so many tokens before the next one; order-0 at none
    classes              n-grams of Brown clusters
    lstm, transformer    networks (`train_network`)

Counting takes no floating-point operations to speak of; its work is how many n-grams were counted. Its parameters are
the numbers that it keeps: a probability for each n-gram, a weight for each context, for classes also a class and a
probability for each token.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.before.ladder.differences import Scores
from cutaway.before.ladder.split_text import Tokenised
from cutaway.before.ladder.train_network import NETWORKS
from cutaway.before.ngrams.ngram import NGramModel
from cutaway.before.ngrams.ngram_folder import write_ngram_folder
from cutaway.before.ngrams.ngram_of_classes import ClassNGramModel, train_class_ngrams
from cutaway.before.ngrams.predictor import Predictor
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.before.units import Tokens

ORDERS = tuple(range(6))
CLASSES, CLASS_ORDER, KINDS_OF_A_CLASS = 100, 3, 2  # at most so many; tokens before the next; tokens of each at least
NAMES = (*(f"order-{order}" for order in ORDERS), "classes", *NETWORKS)


@dataclass(frozen=True)
class Rung:
    """What stands in a row of the table. `flops` or `counts`, whichever its training took; `agreement` as there."""

    name: str
    about: str
    bits_per_byte: float
    parameters: int
    seconds: float
    flops: float | None
    counts: int | None
    sample: str
    steps: int | None = None  # of a network
    agreement: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Counting:
    """The counted rungs of a text. Each counts for itself, so that its time is its own."""

    def __init__(self, text: Tokenised) -> None:
        self.text, self.cut = text, Tokens(str(text.tokenizer_folder))

    def model(self, name: str, out: Path, report: Callable[[float], None]) -> tuple[NGramModel | ClassNGramModel, int]:
        """Of a rung, and how many n-grams were counted for it; the model is also written to `out`."""
        model: NGramModel | ClassNGramModel
        if name == "classes":
            kinds, order = int((np.bincount(self.text.train) > 0).sum()) - 1, CLASS_ORDER + 1
            n = max(1, min(CLASSES, kinds // KINDS_OF_A_CLASS))

            def told(done: int, total: int) -> None:
                report(done / max(total, 1))

            model = train_class_ngrams(self.text.train, len(self.cut.names), order, n, end=self.text.end, report=told)
        else:
            order = int(name.removeprefix("order-")) + 1
            model = train_ngrams(self.text.train, len(self.cut.names), order, end=self.text.end)
        write_ngram_folder(model, self.cut, out)
        return model, order * len(self.text.train)


def numbers_in(model: NGramModel | ClassNGramModel) -> int:
    """How many it keeps."""
    counted = model.model if isinstance(model, ClassNGramModel) else model
    kept = sum(len(table.log_p) + len(table.log_weight) for table in counted.tables)
    return kept + (2 * model.vocab_size if isinstance(model, ClassNGramModel) else 0)


def scores_of_rung(model: Predictor, text: Tokenised) -> Scores:
    """ln p of every held-out token but the first of each piece."""
    return np.concatenate([model.log_probabilities(ids)[1:] for ids in text.held_out])


def bits_per_byte(scores: Scores, text: Tokenised) -> float:
    return -float(scores.sum()) / log(2) / text.n_bytes
