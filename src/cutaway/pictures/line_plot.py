"""Lines: a score over training steps, faithfulness against the size of a circuit, each with its band of doubt."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.colour import SERIES
from cutaway.pictures.html import Table
from cutaway.pictures.picture import Picture, set_field
from cutaway.pictures.picture_data import Array, check_numbers, number, visible_text
from cutaway.pictures.svg import Markup, cut_label, plain, tag, text_label, width_of
from cutaway.pictures.terminal import padded_text

WIDTH, HEIGHT, TOP, LEFT = 560.0, 280.0, 30.0, 64.0
BOTTOM = TOP + HEIGHT
APART, BOLD = 15.0, 1.2  # lines of names; how much wider bold letters are
DASHES = (None, "7 4", "2 3", "9 3 2 3", "12 4", "4 2")


@dataclass(frozen=True, eq=False)
class Lines(Picture):
    """`Lines(steps, {"head 1.7": score}, bands={"head 1.7": (low, high)}, x_name="step", y_name="induction score")`"""

    kind: ClassVar[str] = "lines"

    x: Any
    lines: Mapping[str, Any]
    bands: Mapping[str, Any] = field(default_factory=dict)  # (low, high) of each point
    title: str = ""
    x_name: str = "x"
    y_name: str = "y"
    log_x: bool = False

    def __post_init__(self) -> None:
        x = check_numbers("x", self.x, "point")
        if not np.isfinite(x).all() or (self.log_x and x.min() <= 0):
            raise InputError(f"x must be finite{' and above 0 for log_x' if self.log_x else ''}")
        if not self.lines:
            raise InputError("there are no lines: give at least one, by name")
        if len(self.lines) > len(SERIES):
            raise InputError(
                f"{len(self.lines)} lines are more than {len(SERIES)}, and could not be told apart: make two pictures"
            )
        if odd := self.bands.keys() - self.lines.keys():
            raise InputError(f"a band needs its line: {', '.join(sorted(odd))}")
        lines = {str(name): check_numbers(f"the line {name!r}", y, "point") for name, y in self.lines.items()}
        bands = {
            str(name): check_numbers(f"the band {name!r}", pair, "low and high", "point")
            for name, pair in self.bands.items()
        }
        for name, y in lines.items():
            if len(y) != len(x):
                raise InputError(f"the line {name!r} has {len(y)} points, x has {len(x)}")
        for name, pair in bands.items():
            if pair.shape != (2, len(x)):
                raise InputError(f"the band {name!r} has shape {pair.shape}, not (2, {len(x)})")
        for name, value in {"x": x, "lines": lines, "bands": bands}.items():
            set_field(self, name, value)

    def sentence(self) -> str:
        said = f"{self.y_name} against {self.x_name}, {len(self.x)} points."
        for name, y in self.lines.items():
            at = np.flatnonzero(np.isfinite(y))
            if len(at):
                first, last = at[np.argsort(self.x[at], kind="stable")[[0, -1]]]
                ends = (f"{number(y[i])} at {number(self.x[i], 4)}" for i in (first, last))
                said += f" {visible_text(name)}: {', '.join(ends)}."
            else:
                said += f" {visible_text(name)} has no number."
        return said

    def table(self) -> Table:
        headings = [self.x_name]
        columns = [self.x]
        for name, y in self.lines.items():
            headings.append(name)
            columns.append(y)
            if name in self.bands:
                headings += [f"{name}, low", f"{name}, high"]
                columns += list(self.bands[name])
        return headings, [
            [number(value, 4) for value in row] for row in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        axes, across, down = self._axes()
        order = np.argsort(self.x, kind="stable").tolist()
        lines, ends = self._curves(order, across, down)
        parts = [*axes, *self._areas(order, across, down), *lines, *_end_labels(ends, LEFT + WIDTH + 10, BOTTOM)]
        right = BOLD * max(width_of(cut_label(name, 24)) for name in self.lines)
        return (LEFT + WIDTH + right + 38, BOTTOM + 44), parts

    def _axes(self) -> tuple[list[Markup], list[float], Callable[[Array], list[float]]]:
        """The axes with their names, where each x is, and a function that says where values of y are."""
        x_ticks, y_ticks = self.x_ticks(), self.y_ticks()
        xs = np.log10(self.x) if self.log_x else self.x
        low_x, span_x = float(xs.min()), float(np.ptp(xs)) or 1.0
        low_y, span_y = y_ticks[0], (y_ticks[-1] - y_ticks[0]) or 1.0

        def down(y: Array) -> list[float]:
            with np.errstate(invalid="ignore"):
                return (BOTTOM - HEIGHT * (y - low_y) / span_y).tolist()

        short = width_of(self.y_name) < 56
        at, anchor = (LEFT - 8, "end") if short else (4, None)
        parts = [tag("text", self.y_name, x=at, y=14, class_="dim", text_anchor=anchor)]
        for value, y in zip(y_ticks, down(np.array(y_ticks)), strict=True):
            parts += [
                tag("path", d=f"M{plain(LEFT)} {plain(y)}h{plain(WIDTH)}", class_="rule"),
                tag("text", number(value), x=LEFT - 8, y=y + 4, text_anchor="end", class_="dim"),
            ]
        for value in x_ticks:
            x = LEFT + WIDTH * ((math.log10(value) if self.log_x else value) - low_x) / span_x
            parts += [
                tag("path", d=f"M{plain(x)} {plain(BOTTOM)}v5", class_="rule"),
                tag("text", number(value, 4), x=x, y=BOTTOM + 19, text_anchor="middle", class_="dim"),
            ]
        parts.append(tag("text", self.x_name, x=LEFT + WIDTH, y=BOTTOM + 36, text_anchor="end", class_="dim"))
        return parts, [LEFT + WIDTH * (value - low_x) / span_x for value in xs.tolist()], down

    def _areas(
        self, order: Sequence[int], across: Sequence[float], down: Callable[[Array], list[float]]
    ) -> Iterator[Markup]:
        """The bands."""
        for i, name in enumerate(self.lines):
            if name in self.bands:
                low, high = (down(side) for side in self.bands[name])
                for run in _runs(order, low, high):
                    yield tag("path", d=_area(run, across, low, high), class_=f"f{i}", opacity="0.18")

    def _curves(
        self, order: Sequence[int], across: Sequence[float], down: Callable[[Array], list[float]]
    ) -> tuple[list[Markup], list[tuple[float, str, int]]]:
        """The lines, and the y, name and number of the end of each; few points get circles."""
        parts: list[Markup] = []
        ends: dict[str, tuple[float, str, int]] = {}
        for n, ((name, line), dash) in enumerate(zip(self.lines.items(), DASHES, strict=False)):
            at = down(line)
            how: dict[str, Any] = {"fill": "none", "class_": f"s{n}", "stroke_width": 2, "stroke_dasharray": dash}
            inside = [tag("title", name)]
            for run in _runs(order, at):
                d = "M" + "L".join(f"{plain(across[i])} {plain(at[i])}" for i in run)
                inside.append(tag("path", d=d, **how, stroke_linejoin="round"))
                level = len(run) > 1 and len({at[i] for i in run}) == 1  # the same everywhere: no points of its own
                if len(run) == 1 or (len(order) <= 24 and not level):
                    inside += [tag("circle", cx=across[i], cy=at[i], r=3, class_=f"f{n}") for i in run]
                ends[name] = at[run[-1]], name, n
            parts.append(tag("g", *inside))
        return parts, list(ends.values())

    def y_ticks(self) -> list[float]:
        shown = np.concatenate([y.ravel() for y in (*self.lines.values(), *self.bands.values())])
        finite = shown[np.isfinite(shown)]
        return nice_ticks(float(finite.min()), float(finite.max()), whole=True) if finite.size else [0.0, 1.0]

    def x_ticks(self) -> list[float]:
        low, high = float(self.x.min()), float(self.x.max())
        if not self.log_x:
            return nice_ticks(low, high)
        if len(self.x) <= 5:  # powers of ten may miss all of so few
            return sorted(set(self.x.tolist()))
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(powers) <= 4 else (1,)
        return [10.0**p * step for p in powers for step in steps if low <= 10.0**p * step * 1.000001 <= high * 1.00001]

    def text(self, width: int = 80, colour: bool = False) -> str:
        """A row of blocks for each line: the higher, the larger."""
        ticks = self.y_ticks()
        low, span = ticks[0], (ticks[-1] - ticks[0]) or 1.0
        margin = min(max(map(len, map(visible_text, self.lines))), 20)
        room = max(8, min(len(self.x), width - margin - 2))
        order = np.argsort(self.x, kind="stable")
        chosen = order[np.linspace(0, len(order) - 1, room).round().astype(int)]
        lines = [f"{self.heading}: {visible_text(self.y_name)} against {visible_text(self.x_name)}"]
        for name, y in self.lines.items():
            shares = ((y[chosen] - low) / span).tolist()
            bars = "".join("▁▂▃▄▅▆▇█"[min(int(s * 8), 7)] if math.isfinite(s) else "–" for s in shares)
            lines.append(f"{padded_text(name, margin, right=True)}  {bars}")
        across = f"{visible_text(self.x_name)} {number(self.x.min())} … {number(self.x.max())}"
        return "\n".join([*lines, f"▁ {number(low)} … █ {number(ticks[-1])};  {across}"])

    def _repr_svg_(self) -> str:
        return self.svg()


def nice_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers from low to high; with `whole` the first and last lie outside of them."""
    if low == high:
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9) if whole else math.ceil(low / step - 1e-9)
    last = math.ceil(high / step - 1e-9) if whole else math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _runs(order: Sequence[int], *sides: Sequence[float]) -> list[list[int]]:
    """Points in a row that have numbers; a line is broken where one has none."""
    runs: list[list[int]] = [[]]
    for i in order:
        if all(math.isfinite(side[i]) for side in sides):
            runs[-1].append(i)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _area(run: Sequence[int], across: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    there = [f"{plain(across[i])} {plain(high[i])}" for i in run]
    back = [f"{plain(across[i])} {plain(low[i])}" for i in reversed(run)]
    return "M" + "L".join([*there, *back]) + "z"


def _end_labels(ends: Sequence[tuple[float, str, int]], x: float, bottom: float) -> list[Markup]:
    """The lines' names near their ends, each behind a piece of its line; pushed apart where they would touch, and
    never below the axis."""
    ends = sorted(ends)
    places = [y for y, _, _ in ends]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + APART)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], bottom - APART * (len(places) - 1 - i))
    parts = []
    for y, (_, name, n) in zip(places, ends, strict=True):
        piece = tag("path", d=f"M{plain(x)} {plain(y)}h16", class_=f"s{n}", stroke_width=2, stroke_dasharray=DASHES[n])
        parts += [piece, text_label(name, x + 22, y + 4, 24, class_="strong")]
    return parts
