"""The models of the ladder, and how those that count are trained and scored.

    order-0 … order-5    n-grams (Kneser–Ney) that condition on so many tokens; order-0 on none
    classes              n-grams of Brown clusters
    lstm, transformer    networks (`train_network`)

Counting takes hardly any floating-point operations; its work is the number of n-grams counted. Its parameters are the
numbers in its tables: a probability for each n-gram, a weight for each context, and for classes also a class and a
probability for each token.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from cutaway.arguments import fits
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
CLASSES, CLASS_ORDER, KINDS_OF_A_CLASS = 100, 3, 2  # maximum number; context tokens; minimum tokens of a class
CountedModel = NGramModel | ClassNGramModel
NAMES = (*(f"order-{order}" for order in ORDERS), "classes", *NETWORKS)


@dataclass(frozen=True)
class Rung:
    """One row of the table. Training took `flops` or `counts`; `agreement` is that of `verb_agreement`."""

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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Rung":
        """The row with these values, which a file may have from elsewhere."""
        hints = get_type_hints(cls)
        odd = [name for name, value in values.items() if name in hints and not fits(value, hints[name])]
        odd += ["name"] if values["name"] not in NAMES else []
        odd += ["work"] if (values["flops"] is None) == (values["counts"] is None) else []
        if odd:
            raise ValueError(f"the {odd[0]} of a rung is not what we write")
        return cls(**values)


class Counting:
    """Trains the n-gram models of a text. Each counts anew, so that its time is its own."""

    def __init__(self, text: Tokenised) -> None:
        self.text, self.cut = text, Tokens(str(text.tokenizer_folder))

    def model(self, name: str, out: Path, progress: Callable[[float], None]) -> tuple[CountedModel, int]:
        """Returns a model and the number of n-grams counted for it, and writes the model to `out`."""
        model: CountedModel
        if name == "classes":
            kinds, order = int((np.bincount(self.text.train) > 0).sum()) - 1, CLASS_ORDER + 1
            n = max(1, min(CLASSES, kinds // KINDS_OF_A_CLASS))

            def on_merge(done: int, total: int) -> None:
                progress(done / max(total, 1))

            model = train_class_ngrams(
                self.text.train, len(self.cut.names), order, n, end=self.text.end, progress=on_merge
            )
        else:
            order = int(name.removeprefix("order-")) + 1
            model = train_ngrams(self.text.train, len(self.cut.names), order, end=self.text.end)
        write_ngram_folder(model, self.cut, out)
        return model, order * len(self.text.train)


def n_parameters(model: CountedModel) -> int:
    """The number of parameters."""
    counted = model.model if isinstance(model, ClassNGramModel) else model
    kept = sum(len(table.log_p) + len(table.log_weight) for table in counted.tables)
    return kept + (2 * model.vocab_size if isinstance(model, ClassNGramModel) else 0)


def scores_of_rung(model: Predictor, text: Tokenised) -> Scores:
    """ln p of every held-out token except the first of each piece."""
    return np.concatenate([model.log_probabilities(ids)[1:] for ids in text.held_out])


def bits_per_byte(scores: Scores, text: Tokenised) -> float:
    return -float(scores.sum()) / log(2) / text.n_bytes
