"""Text, numbers and JSON for a terminal: control characters are escaped, and a minus sign is as wide as a plus."""

import json
import math
import re
import sys
from typing import Any


def shown(text: str) -> str:
    """A text for stdout: a terminal gets escapes in place of control characters, which it would obey."""
    return visible_controls(text) if sys.stdout.isatty() else text


def visible_controls(text: str) -> str:
    """Control characters, other than line ends and tabs, as their escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def minus(text: str) -> str:
    """With − in place of -, as in all pictures: it is as wide as +."""
    return text.replace("-", "−")


def human(n: int | float, unit: str) -> str:
    """Three digits and a power of 1000: 124 MB, 1.50 GFLOP."""
    power = 0
    while n >= 999.5 and power < 5:
        n, power = n / 1000, power + 1
    digits = 0 if power == 0 or n >= 99.95 else 1 if n >= 9.995 else 2
    return f"{n:.{digits}f} {' kMGTP'[power].strip()}{unit}"


def json_text(data: Any, indent: int | None = None) -> str:
    """As JSON; NaN and infinities, which JSON lacks, become null. Control characters are escaped."""
    text = json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data
