"""What a picture is made of: arrays, names, and how both stand behind it, so that every number can be read back.

Small arrays stand in the page as JSON numbers of six digits. Large ones, more than `SMALL` numbers, stand as deflated
float16 in base64: off by at most 2⁻¹¹ of the number, or by 2⁻²⁴ of the largest where that is more.
"""

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import CheckpointError, InputError

Array = NDArray[Any]
SMALL = 10_000  # numbers that stand as JSON
LARGEST = 1 << 21  # numbers that one picture may carry: 4 MB of float16 before it is deflated
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef￾￿]")


def visible_text(text: str) -> str:
    """`text` as it stands in every picture: what has no shape, or would turn the rest around, becomes visible.

    A new line is ↵, a tab ⇥, a token of spaces ␣; other control characters, the marks that turn the direction of
    writing and halves of surrogate pairs are written as in Python. All that is left may stand in XML.
    """
    if text.isspace() and text.strip(" ") == "":
        return "␣" * len(text)
    return _HIDDEN.sub(_shape, text)


def _shape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return {10: "↵", 9: "⇥"}.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def quoted(text: str) -> str:
    """A token in a sentence."""
    return f"«{visible_text(text).strip()}»"


def check_numbers(what: str, values: Any, *axes: str, most: int = LARGEST) -> Array:
    """`values` as floats on the CPU, whatever they were, with these axes; none may be empty."""
    if hasattr(values, "detach"):  # a torch tensor, without torch
        values = values.detach().cpu()
        values = values.float() if values.element_size() < 4 else values
        values = values.numpy()
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "biuf":
            found = found.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what}: needs numbers for {' × '.join(axes)}, all rows of one length") from None
    if found.ndim != len(axes):
        raise InputError(f"{what} has shape {found.shape}: it needs {len(axes)} axes, {' × '.join(axes)}")
    if not found.size:
        empty = " and ".join(axis for axis, n in zip(axes, found.shape, strict=True) if not n)
        raise InputError(f"{what} is empty: there is no {empty}")
    if found.size > most:
        raise InputError(
            f"{what} has {found.size:,} numbers; a picture carries at most {most:,}: choose rows and columns, or pool"
        )
    return found if found.dtype.kind == "f" and found.dtype.itemsize >= 4 else found.astype(np.float64)


def check_names(what: str, given: Sequence[Any], n: int) -> tuple[str, ...]:
    """One name for each of `n`; where none are given, numbers from 0."""
    if len(given) == 0:
        return tuple(map(str, range(n)))
    if isinstance(given, str) or not all(isinstance(name, str | int) for name in given):
        raise InputError(f"{what} must be a list of strings, one for each of {n}")
    if len(given) != n:
        raise InputError(f"{what}: {len(given)} names for {n}; give one for each")
    return tuple(map(str, given))


def number(given: SupportsFloat, digits: int = 3) -> str:
    """A number for people; what is not finite is –."""
    value = float(given)
    if not math.isfinite(value):
        return "–"
    shown = f"{value:.0f}" if 10**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"
    return shown.replace("e-0", "e-").replace("e+0", "e").replace("-", "−") if value else "0"


def short(value: float) -> str:
    """A number in at most six columns."""
    tried = number(value, 2)
    return tried if len(tried) <= 6 else number(value, 1)


def round_values(values: Array) -> Array:
    """To a hundredth of the largest: what is smaller only crowds the cells."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return values.round(2 - int(np.floor(np.log10(largest)))) if largest else values


def rounded_number(value: float) -> float:
    """Six significant digits; minus zero is zero."""
    return float(f"{value:.6g}") + 0.0


# --- into the page and back -------------------------------------------------------------------------------------------


def pack_array(values: Array) -> dict[str, Any]:
    """An array as JSON; NaN is null, infinities are strings, since JSON has neither. Bytes stay bytes."""
    if values.dtype == np.uint8:
        return {"shape": list(values.shape), "bytes": base64.b64encode(zlib.compress(values.tobytes(), 6)).decode()}
    if values.size <= SMALL:
        flat = [_json_number(value) for value in values.ravel().tolist()]
        return {"shape": list(values.shape), "numbers": flat}
    finite = np.where(np.isfinite(values), values, 0)
    largest = max(float(finite.max()), -float(finite.min()))
    scale = 2.0 ** min(max(math.frexp(largest)[1], -900), 1000) if largest else 1.0
    halves = (values / scale).astype("<f2").tobytes()
    return {"shape": list(values.shape), "float16": base64.b64encode(zlib.compress(halves, 6)).decode(), "scale": scale}


def unpack_array(packed: Any) -> Array:
    """What `pack` wrote, also from a file that somebody changed: then an error that says so."""
    try:
        shape = [int(n) for n in packed["shape"]]
        if math.prod(shape) > LARGEST or any(n < 0 for n in shape):
            raise ValueError("too large")
        if "numbers" in packed:
            flat = [math.nan if value is None else float(value) for value in packed["numbers"]]
            return np.array(flat, np.float64).reshape(shape)
        if "bytes" in packed:
            inflated = zlib.decompressobj().decompress(base64.b64decode(packed["bytes"]), math.prod(shape))
            return np.frombuffer(inflated, np.uint8).reshape(shape)
        inflated = zlib.decompressobj().decompress(base64.b64decode(packed["float16"]), 2 * math.prod(shape))
        return np.frombuffer(inflated, "<f2").astype(np.float64).reshape(shape) * float(packed["scale"])
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise CheckpointError(f"the numbers of this picture are damaged: {error}") from None


def _json_number(value: float) -> int | float | str | None:
    if math.isfinite(value):
        short = rounded_number(value)
        return int(short) if short.is_integer() and abs(short) < 1e6 else short
    return None if math.isnan(value) else "inf" if value > 0 else "-inf"


def to_json(data: Any) -> str:
    """JSON in ASCII with no character that means something to HTML or XML: it may stand in any element, as it is."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
