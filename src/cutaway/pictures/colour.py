"""Numbers → colours → pixels.

Sequential: cividis (Nuñez, Anderton and Renslow 2018), made to look the same to people with and without colour-blind
eyes, by ten of its published values. Diverging: RdBu of ColorBrewer (Brewer 2003), by its eleven. Between them we draw
straight lines in sRGB. Several lines in one picture have the colours of Okabe and Ito (2008).
"""

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import UInt8

from cutaway.errors import InputError
from cutaway.pictures.picture_data import Array

ANCHORS = {
    "sequential": "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
    "diverging": "67001f b2182b d6604d f4a582 fddbc7 f7f7f7 d1e5f0 92c5de 4393c3 2166ac 053061",
}
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a06c00", "#3a93c4")  # the last two darker, for white paper
AT_NIGHT = ("#56b4e9", "#f08a3c", "#2bc79a", "#e09cc0", "#e69f00", "#8fd0f5")  # the same, lighter
STEPS = 255  # of a palette of 256; the one left, number 0, is a hole: what is not finite has no colour


@cache
def ramp(kind: str) -> UInt8[np.ndarray, "step rgb"]:
    """The colours of a map, from its lowest number to its highest."""
    anchors = np.array([[int(part[i : i + 2], 16) for i in (0, 2, 4)] for part in ANCHORS[kind].split()])
    at = np.linspace(0, len(anchors) - 1, STEPS)
    mixed = [np.interp(at, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return np.stack(mixed, axis=1).round().astype(np.uint8)


@dataclass(frozen=True)
class Scale:
    """Which colour a number has. `root` spreads the small ones: colours follow the square root."""

    low: float
    high: float
    kind: str
    root: bool = False

    @classmethod
    def of(
        cls,
        values: Array,
        kind: str = "auto",
        low: int | float | None = None,
        high: int | float | None = None,
        root: bool = False,
    ) -> "Scale":
        """From 0 to the largest; where there are negative numbers, as far down as up: 0 is the middle."""
        if kind not in ("auto", "sequential", "diverging"):
            raise InputError(f'colours={kind!r} is not known: "auto", "sequential" or "diverging"')
        finite = values[np.isfinite(values)] if not np.isfinite(values).all() else values
        least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        if kind == "diverging" or (kind == "auto" and (least if low is None else low) < 0):
            if low is not None and high is not None and low != -high:
                raise InputError(
                    f"low={low} and high={high}: a diverging map needs low = -high, so that 0 is its middle"
                )
            reach = float(abs(high or low or max(abs(least), abs(most))))
            return cls(-reach, reach, "diverging", root)
        bottom = min(least, 0.0) if low is None else float(low)
        top = most if high is None else float(high)
        if root and bottom < 0:
            raise InputError(f"root=True needs numbers from 0 on, or a diverging map; the least is {bottom:.3g}")
        return cls(bottom, max(top, bottom), "sequential", root)

    def steps(self, values: Array) -> UInt8[np.ndarray, "..."]:
        """The colour of each number, 1…255; beyond the ends it is that of the end, and 0 is a hole."""
        span = self.high - self.low
        with np.errstate(invalid="ignore", over="ignore"):
            if self.kind == "diverging":
                share = np.clip(values / (self.high or 1.0), -1, 1)
                share = (np.sign(share) * np.sqrt(np.abs(share)) + 1) / 2 if self.root else (share + 1) / 2
            else:
                share = np.clip((values - self.low) / (span or 1.0), 0, 1)
                share = np.sqrt(share) if self.root else share
            found = 1 + np.rint(share * (STEPS - 1))
        return np.where(np.isfinite(values), found, 0).astype(np.uint8)

    def colours(self, values: Array) -> list[str | None]:
        """`#rrggbb` for each number, None for what is not finite."""
        table = [None, *("#" + bytes(colour.tolist()).hex() for colour in ramp(self.kind))]
        return [table[step] for step in self.steps(values).ravel().tolist()]

    def ticks(self) -> list[tuple[float, float]]:
        """(share of the bar, number) of the legend."""
        if self.low == self.high:
            return [(0.5, self.low)]
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        if self.kind == "diverging":
            bent = [math.copysign((2 * s - 1) ** 2, s - 0.5) if self.root else 2 * s - 1 for s in shares]
            return [(s, b * self.high) for s, b in zip(shares, bent, strict=True)]
        return [(s, self.low + (s * s if self.root else s) * (self.high - self.low)) for s in shares]

    def palette(self) -> bytes:
        """Hole and colours, three bytes each."""
        return b"\0\0\0" + ramp(self.kind).tobytes()

    def image(self, values: Array) -> str:
        """One pixel for each number, as a data URI."""
        return data_uri(png(self.steps(values), self.palette()))


def text_colour(colour: str | None) -> str:
    """Black or white, whichever stands out more."""
    if colour is None:
        return "#1f2328"
    linear = [_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5)]
    bright = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if bright > 0.179 else "#ffffff"


def _linear(share: float) -> float:
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def png(pixels: UInt8[np.ndarray, "height width ..."], palette: bytes = b"") -> bytes:
    """A PNG file: grey, RGB or RGBA by its last axis, or numbers of a palette, whose first colour is transparent."""
    height, width = pixels.shape[:2]
    kind = 3 if palette else 0 if pixels.ndim == 2 else {3: 2, 4: 6}[pixels.shape[2]]
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with its filter: none
    chunks = {b"IHDR": struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)}
    if palette:
        chunks |= {b"PLTE": palette, b"tRNS": b"\0"}
    chunks |= {b"IDAT": zlib.compress(rows.tobytes(), 6), b"IEND": b""}
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def data_uri(image: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(image).decode()


def max_pool(values: Array, most: int) -> Array:
    """The last two axes with at most `most` entries each: the one furthest from 0 stands for its neighbours.

    A mean would hide the one weight that a thumbnail is for. Where nothing is finite, NaN.
    """
    for axis in (values.ndim - 2, values.ndim - 1):
        n = values.shape[axis]
        if n <= most:
            continue
        step = -(-n // most)
        pad = [(0, 0)] * values.ndim
        pad[axis] = (0, -n % step)
        whole = np.isfinite(values).all()
        if whole and values.min() >= 0:  # attention: half the work
            starts = np.arange(0, n, step)
            values = np.maximum.reduceat(values, starts, axis=axis)
            continue
        lowest = np.pad(np.where(np.isfinite(values), values, np.inf), pad, constant_values=np.inf)
        highest = np.pad(np.where(np.isfinite(values), values, -np.inf), pad, constant_values=-np.inf)
        cut = (*values.shape[:axis], -1, step, *values.shape[axis + 1 :])
        low, high = lowest.reshape(cut).min(axis=axis + 1), highest.reshape(cut).max(axis=axis + 1)
        far = np.where(np.abs(low) > np.abs(high), low, high)
        values = np.where(np.isfinite(low), far, np.nan)
    return values
