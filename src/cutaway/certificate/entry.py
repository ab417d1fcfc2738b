"""One line of a certificate, and what a measurement may come to."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from torch import Tensor

from cutaway.errors import CheckpointError, CutawayError

Verdict = Literal["passed", "failed", "error", "not applicable", "not measured"]
TOLERANCE = 1e-5  # in single precision, of the largest number
NO_NUMBER, OTHER_SHAPE = "an answer is not a finite number", "the answers differ in shape"


class NotApplicable(Exception):
    """The law says nothing about this model, and why."""


class NotMeasured(Exception):
    """The law could not be tried here, and why."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that has to stay within its tolerance."""

    value: float
    what: str = "largest difference / largest number"
    inputs: str
    tolerance: float | None = None  # unless it is TOLERANCE
    agreement: float | None = None  # of the likeliest tokens or classes, where that is asked
    why: str = ""  # where the number says too little


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What was measured, on what, and whether it is within the tolerance."""

    law: str
    verdict: Verdict
    why: str = ""  # where there is no number, or it says too little
    what: str = ""
    inputs: str = ""
    value: float | None = None
    tolerance: float | None = None
    agreement: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any, where: str) -> "Entry":
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(cls)}:
            raise CheckpointError(f"{where}: an entry is not one of this version")
        if values["verdict"] not in get_args(Verdict):
            raise CheckpointError(
                f"{where}: the verdict {values['verdict']!r} is none of {', '.join(get_args(Verdict))}"
            )
        for name, value in values.items():
            kinds = (int, float, type(None)) if name in ("value", "tolerance", "agreement") else str
            huge = isinstance(value, int) and abs(value) >= 1 << 63  # a float comes whole and finite
            if not isinstance(value, kinds) or isinstance(value, bool) or huge:
                raise CheckpointError(f"{where}: {name}={value!r} in an entry")
        return cls(**values)


def judged(law: str, measure: Callable[[], Measure]) -> Entry:
    """The entry of a law. What breaks while it is measured says nothing about it, and must not hide the other laws."""
    try:
        found = measure()
    except NotApplicable as reason:
        return Entry(law=law, verdict="not applicable", why=str(reason))
    except NotMeasured as reason:
        return Entry(law=law, verdict="not measured", why=str(reason))
    except Exception as error:
        kind = "" if isinstance(error, CutawayError) else f"{type(error).__name__}: "
        said = " ".join(str(error).split())[:300]
        return Entry(law=law, verdict="error", why=f"could not be measured: {kind}{said}")
    finite = math.isfinite(found.value)
    tolerance = TOLERANCE if found.tolerance is None else found.tolerance
    return Entry(
        law=law,
        verdict="passed" if finite and found.value <= tolerance else "failed",
        why=found.why if finite else NO_NUMBER if math.isnan(found.value) else OTHER_SHAPE,
        what=found.what,
        inputs=found.inputs,
        value=found.value if finite else None,
        tolerance=tolerance,
        agreement=found.agreement,
    )


def difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number; NaN, which never passes, if something is not finite."""
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return math.inf
    if not all(bool(x.isfinite().all()) for x in (*ours, *theirs)):
        return math.nan
    largest = max(float(x.abs().max()) for x in (*ours, *theirs))
    if largest == 0:
        raise NotMeasured("every answer is 0, so that nothing could differ")
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / largest
