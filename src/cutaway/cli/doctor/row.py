"""One finding of the doctor."""

from dataclasses import dataclass, field
from typing import Any, Literal

GIB = 2**30


@dataclass(frozen=True)
class Row:
    """`slow`: it works, but could be faster. `missing`: it is not here, which is a fault only if it is `essential`."""

    name: str
    status: Literal["ok", "slow", "missing"]
    found: str
    fix: str = ""
    essential: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        return self.essential and self.status == "missing"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
