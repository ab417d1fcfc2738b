"""How similar translations are to reference translations: BLEU (Papineni et al. 2002) and chrF (Popović 2015).

    BLEU = min(1, e^(1 − r/c)) · (p₁ p₂ p₃ p₄)^(1/4)        p_n: the share of our n-grams that are in the reference;
                                                            c, r: the lengths of ours and of the reference
    chrF = the F₂ of n-grams of characters, n = 1 … 6

Both are computed by `sacrebleu`, whose signature says how, so that there is only one BLEU here. By default text is
cased and detokenized, with 13a tokenization.

Both are functions of counts that add up over sentences: `bleu_counts` keeps a row for each sentence, so that a
resampled corpus needs only a sum (`evaluation.bootstrap`).
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
    """A number between 0 and 100, and how it was computed."""

    value: float
    signature: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f} ({self.signature})"


@dataclass(frozen=True, eq=False)
class BleuCounts:
    """The counts of each sentence; `from_sum` makes a score of their sum."""

    name: str
    signature: str
    rows: Float[np.ndarray, "n k"]
    from_sum: Callable[[list[float]], float]

    def score(self) -> Score:
        """The score of the whole corpus."""
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
    """The counts of each sentence for BLEU: its length, the reference's, matching n-grams and all n-grams."""
    known = _metrics().BLEU.TOKENIZERS
    if tokenize not in known:
        raise InputError(f"tokenize={tokenize!r} is not one of {', '.join(known)}")
    # force: without a warning about texts that end in " ."
    return _counts(_metrics().BLEU(lowercase=lowercase, tokenize=tokenize, force=True), hypotheses, references)


def chrf_counts(hypotheses: Sequence[str], references: Sequence[str]) -> BleuCounts:
    """The counts of each sentence for chrF: n-grams of characters in it, in the reference, and in both."""
    return _counts(_metrics().CHRF(), hypotheses, references)


def _counts(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> BleuCounts:
    """Uses private methods, as sacrebleu's own significance tests do: no public one gives the rows."""
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
    """Raises an error if sacrebleu is missing, before anything is translated."""
    _metrics()


def _metrics() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise MissingExtra("sacrebleu", "evaluate") from None
    return metrics
