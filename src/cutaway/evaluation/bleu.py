"""How close translations come to those of people: BLEU (Papineni et al. 2002) and chrF (Popović 2015).

    BLEU = min(1, e^(1 − r/c)) · (p₁ p₂ p₃ p₄)^(1/4)        p_n: share of our n-grams that the reference has, too;
                                                            c, r: how long we and the reference are
    chrF = the F₂ of n-grams of characters, n = 1 … 6

`sacrebleu` counts, and its signature says how: two scorers would give two BLEUs, so this is the only one here. Cased,
13a tokenisation and detokenised text, unless said otherwise.

Both are functions of counts that add up over sentences: `bleu_counts` keeps a row for each, so that a resampled corpus
costs one sum (`evaluation.bootstrap`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from cutaway.arguments import checked
from cutaway.errors import InputError, MissingExtra


@dataclass(frozen=True)
class Score:
    """A number between 0 and 100, and how it was counted."""

    value: float
    signature: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f} ({self.signature})"


@dataclass(frozen=True, eq=False)
class BleuCounts:
    """What each sentence adds to a corpus; `from_sum` makes a score of the sum."""

    name: str
    signature: str
    rows: Float[np.ndarray, "n k"]
    from_sum: Callable[[list[float]], float]

    def score(self) -> Score:
        """The corpus, whole."""
        return Score(self.from_sum(self.rows.sum(axis=0).tolist()), self.signature, self.name)


@checked
def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """BLEU of a corpus, one reference for each hypothesis."""
    return bleu_counts(hypotheses, references, lowercase=lowercase, tokenize=tokenize).score()


@checked
def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF of a corpus, one reference for each hypothesis."""
    return chrf_counts(hypotheses, references).score()


def bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> BleuCounts:
    """What each sentence adds to BLEU: its length, the reference's, and n-grams that match and that there are."""
    known = _metrics().BLEU.TOKENIZERS
    if tokenize not in known:
        raise InputError(f"tokenize={tokenize!r} is not one of {', '.join(known)}")
    # force: otherwise a text that ends in " ." a hundred times is scolded on stderr
    return _counts(_metrics().BLEU(lowercase=lowercase, tokenize=tokenize, force=True), hypotheses, references)


def chrf_counts(hypotheses: Sequence[str], references: Sequence[str]) -> BleuCounts:
    """What each sentence adds to chrF: n-grams of characters in it, in the reference, and in both."""
    return _counts(_metrics().CHRF(), hypotheses, references)


def _counts(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> BleuCounts:
    """The underscores are sacrebleu's: its own significance tests go the same way, and no public one gives the rows."""
    if len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses)} translations for {len(references)} references")
    if not references:
        raise InputError("no references, no score")
    for row, reference in enumerate(references):
        if not reference.strip():
            raise InputError(f"reference {row + 1} of {len(references)} is empty: nothing can match it")
    rows = metric._extract_corpus_statistics(hypotheses, [references])

    def from_sum(counts: list[float]) -> float:
        return float(metric._compute_score_from_stats(counts).score)

    name = metric._compute_score_from_stats(list(rows[0])).name
    return BleuCounts(name, str(metric.get_signature()), np.asarray(rows, dtype=np.float64), from_sum)


def check_installed() -> None:
    """Says that sacrebleu is missing, before anybody translates for it."""
    _metrics()


def _metrics() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtra("sacrebleu", "evaluate") from None
    return metrics
