"""One entry of a certificate, and the possible results of a measurement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from torch import Tensor

from cutaway.errors import CheckpointError, CutawayError

Verdict = Literal["passed", "failed", "error", "not applicable", "not measured"]
TOLERANCE = 1e-5  # of the largest number, in single precision
NOT_FINITE, OTHER_SHAPE = "a result is not a finite number", "the results differ in shape"


class NotApplicable(Exception):
    """The law does not apply to this model; the message is the reason."""


class NotMeasured(Exception):
    """The law cannot be measured here; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A value that has to stay within its tolerance."""

    value: float
    what: str = "largest difference / largest number"
    inputs: str
    tolerance: float | None = None  # None: TOLERANCE
    agreement: float | None = None  # share of equal most likely tokens or classes
    why: str = ""  # an explanation, if the value needs one


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What was measured, on which inputs, and whether it is within the tolerance."""

    law: str
    verdict: Verdict
    why: str = ""  # the reason, if there is no value or it needs an explanation
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
            huge = isinstance(value, int) and abs(value) >= 1 << 63  # read_json has refused floats that are not finite
            if not isinstance(value, kinds) or isinstance(value, bool) or huge:
                raise CheckpointError(f"{where}: {name}={value!r} in an entry")
        return cls(**values)


def judge(law: str, measure: Callable[[], Measure]) -> Entry:
    """Measures a law. An error says nothing about the law, and must not prevent the other measurements."""
    try:
        result = measure()
    except NotApplicable as reason:
        return Entry(law=law, verdict="not applicable", why=str(reason))
    except NotMeasured as reason:
        return Entry(law=law, verdict="not measured", why=str(reason))
    except Exception as error:
        kind = "" if isinstance(error, CutawayError) else f"{type(error).__name__}: "
        message = " ".join(str(error).split())[:300]
        return Entry(law=law, verdict="error", why=f"could not be measured: {kind}{message}")
    finite = math.isfinite(result.value)
    tolerance = TOLERANCE if result.tolerance is None else result.tolerance
    return Entry(
        law=law,
        verdict="passed" if finite and result.value <= tolerance else "failed",
        why=result.why if finite else NOT_FINITE if math.isnan(result.value) else OTHER_SHAPE,
        what=result.what,
        inputs=result.inputs,
        value=result.value if finite else None,
        tolerance=tolerance,
        agreement=result.agreement,
    )


def difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number; NaN, which never passes, if a number is not finite."""
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return math.inf
    if not all(bool(x.isfinite().all()) for x in (*ours, *theirs)):
        return math.nan
    largest = max(float(x.abs().max()) for x in (*ours, *theirs))
    if largest == 0:
        raise NotMeasured("all results are 0, so that nothing could differ")
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / largest
