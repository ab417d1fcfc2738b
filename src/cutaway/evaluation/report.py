"""The result of an evaluation: scores, their confidence intervals, how they were computed, and what they depend on."""

from dataclasses import asdict, dataclass, field
from typing import Any

from cutaway.evaluation.bootstrap import Interval


@dataclass(frozen=True)
class Report:
    """`scores` by name, each with its interval; BLEU and chrF with the signature of their scorer."""

    task: str
    n: int  # examples
    scores: dict[str, float]
    intervals: dict[str, Interval] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # what the scores depend on besides model and data
    notes: tuple[str, ...] = ()  # warnings, such as of texts that were cut
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ItemReport(Report):
    """A report with the result of each example in `items`."""

    items: tuple[dict[str, Any], ...] = ()
