"""What an evaluation found: scores, how sure they are, how they were counted, and what they depend on."""

from collections.abc import Callable, Mapping
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
    notes: tuple[str, ...] = ()  # what a person should know: texts that were cut
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ItemReport(Report):
    """`items` say of each example what was found."""

    items: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Sureness:
    """How intervals are drawn; `resamples` of 0 leaves them out."""

    seed: int = 0
    resamples: int = 1000
    level: float = 0.95

    def of(self, statistics: Mapping[str, Callable[[], Interval | None]]) -> dict[str, Interval]:
        made = {name: make() for name, make in statistics.items()} if self.resamples else {}
        return {name: interval for name, interval in made.items() if interval is not None}

    def options(self) -> dict[str, Any]:
        return {"seed": self.seed, "resamples": self.resamples, "level": self.level}


SURE = Sureness()
