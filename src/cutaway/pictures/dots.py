"""Dots: a score for each of some things, by one measurement or several, each with its interval."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.colour import SERIES
from cutaway.pictures.html import Table
from cutaway.pictures.line_plot import nice_ticks
from cutaway.pictures.picture import Picture, set_field
from cutaway.pictures.picture_data import check_names, check_numbers, number, visible_text
from cutaway.pictures.svg import Markup, axis_names, cut_label, plain, tag, text_label, width_of
from cutaway.pictures.terminal import padded_text, wrapped_text

WIDTH, ROW, APART = 440.0, 22.0, 9.0  # of the axis; of a row, and between the dots in it
LONGEST = 32  # letters of a name
MARKS = "●○◆◇▲△"


@dataclass(frozen=True, eq=False)
class Dots(Picture):
    """`Dots(["RTE", "CoLA"], {"trained before": [61, 26], "not": [50, 10]}, intervals={…}, x_name="score")`"""

    kind: ClassVar[str] = "dots"

    rows: Sequence[str]
    dots: Mapping[str, Any]  # of each series a number in each row, NaN where there is none
    intervals: Mapping[str, Any] = field(default_factory=dict)  # (low, high) of each dot of a series
    title: str = ""
    x_name: str = "x"
    level: float | None = None  # a line for all rows, to compare with

    def __post_init__(self) -> None:
        if not self.rows or not self.dots:
            raise InputError("there are no dots: give at least one row and one series, by name")
        if len(self.dots) > len(SERIES):
            raise InputError(f"{len(self.dots)} series are more than {len(SERIES)}, and could not be told apart")
        if odd := self.intervals.keys() - self.dots.keys():
            raise InputError(f"intervals need their dots: {', '.join(sorted(odd))}")
        n = len(self.rows)
        dots = {str(name): check_numbers(f"the dots {name!r}", x, "row") for name, x in self.dots.items()}
        intervals = {
            str(name): check_numbers(f"the intervals {name!r}", pair, "low and high", "row")
            for name, pair in self.intervals.items()
        }
        for name, x in dots.items():
            if len(x) != n:
                raise InputError(f"the dots {name!r} are {len(x)}, and there are {n} rows")
        for name, pair in intervals.items():
            if pair.shape != (2, n):
                raise InputError(f"the intervals {name!r} have shape {pair.shape}, not (2, {n})")
        level = self.level if self.level is not None and math.isfinite(self.level) else None
        kept = {"rows": check_names("rows", self.rows, n), "dots": dots, "intervals": intervals, "level": level}
        for name, value in kept.items():
            set_field(self, name, value)

    def sentence(self) -> str:
        said = f"{visible_text(self.x_name)} of {len(self.rows)} rows."
        for name, x in self.dots.items():
            which = np.flatnonzero(np.isfinite(x))
            if len(which):
                ends = (which[np.argmin(x[which])], which[np.argmax(x[which])])
                low, high = (f"{number(x[i])} ({visible_text(self.rows[i])})" for i in ends)
                said += f" {visible_text(name)}: {low if len(which) == 1 else f'from {low} to {high}'}."
            else:
                said += f" {visible_text(name)} has no number."
        return said

    def table(self) -> Table:
        headings, columns = [""], []
        for name, x in self.dots.items():
            headings.append(name)
            columns.append(x)
            if name in self.intervals:
                headings += [f"{name}, low", f"{name}, high"]
                columns += list(self.intervals[name])
        return headings, [[row, *(number(column[i], 4) for column in columns)] for i, row in enumerate(self.rows)]

    def ticks(self) -> list[float]:
        shown = np.concatenate([x.ravel() for x in (*self.dots.values(), *self.intervals.values())])
        finite = shown[np.isfinite(shown)].tolist() + ([] if self.level is None else [self.level])
        return nice_ticks(min(finite), max(finite), whole=True) if finite else [0.0, 1.0]

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        left, ticks = axis_names(self.rows, LONGEST) + 20, self.ticks()
        top = 30.0 if len(self.dots) > 1 else 8.0
        high = max(ROW, APART * len(self.dots) + 10)
        bottom, span = top + high * len(self.rows), (ticks[-1] - ticks[0]) or 1.0

        def across(value: float) -> float:
            return left + WIDTH * (value - ticks[0]) / span

        parts: list[Markup] = []
        for value in ticks:
            parts += [
                tag("path", d=f"M{plain(across(value))} {plain(top)}V{plain(bottom)}", class_="rule"),
                tag("text", number(value), x=across(value), y=bottom + 17, text_anchor="middle", class_="dim"),
            ]
        parts.append(tag("text", self.x_name, x=left + WIDTH, y=bottom + 34, text_anchor="end", class_="dim"))
        if self.level is not None:
            at = f"M{plain(across(self.level))} {plain(top)}V{plain(bottom)}"
            parts.append(tag("path", d=at, class_="hatch", stroke_dasharray="4 3"))
        for i, row in enumerate(self.rows):
            middle = top + high * (i + 0.5)
            parts.append(text_label(row, left - 12, middle + 4, LONGEST, text_anchor="end"))
            for n, name in enumerate(self.dots):
                parts += self._dot(n, name, i, middle + APART * (n - (len(self.dots) - 1) / 2), across)
        named, end = self._names(left)
        return (max(left + WIDTH + 20, end), bottom + 42), parts + named

    def _dot(self, n: int, name: str, row: int, y: float, across: Callable[[float], float]) -> list[Markup]:
        value = float(self.dots[name][row])
        if not math.isfinite(value):
            return []
        inside = [tag("title", f"{self.rows[row]}, {name}: {number(value, 4)}")]
        low, high = self.intervals[name][:, row].tolist() if name in self.intervals else (math.nan, math.nan)
        if math.isfinite(low) and math.isfinite(high):
            d = f"M{plain(across(low))} {plain(y)}H{plain(across(high))}"
            inside.append(tag("path", d=d, class_=f"s{n}", stroke_width=2, opacity="0.55"))
        return [tag("g", *inside, tag("circle", cx=across(value), cy=y, r=4.5, class_=f"f{n}"))]

    def _names(self, x: float) -> tuple[list[Markup], float]:
        """The series in one line above the rows, where there are several; and where that ends."""
        parts = []
        for n, name in enumerate(self.dots if len(self.dots) > 1 else ()):
            parts += [tag("circle", cx=x + 5, cy=12, r=4.5, class_=f"f{n}"), text_label(name, x + 14, 16, LONGEST)]
            x += width_of(cut_label(name, LONGEST)) + 34
        return parts, x

    def text(self, width: int = 80, colour: bool = False) -> str:
        """A line for each row, with a mark for each series; the interval where there is one series alone."""
        ticks, alone = self.ticks(), len(self.dots) == 1
        margin = min(max(map(len, map(visible_text, self.rows))), LONGEST)
        room = max(width - margin - 3 - 6 * len(self.dots), 8)

        def column(value: float) -> int:
            return round((room - 1) * (value - ticks[0]) / ((ticks[-1] - ticks[0]) or 1.0))

        lines = [f"{self.heading}: {visible_text(self.x_name)}"]
        for i, row in enumerate(self.rows):
            drawn, values = [" "] * room, [float(x[i]) for x in self.dots.values()]
            for pair in self.intervals.values() if alone else ():
                if np.isfinite(pair[:, i]).all():
                    low, high = (column(end) for end in pair[:, i].tolist())
                    drawn[low : high + 1] = "─" * (high + 1 - low)
            for value, mark in zip(values, MARKS, strict=False):
                if math.isfinite(value):
                    drawn[column(value)] = mark
            shown = "".join(padded_text(number(value), 6, right=True) for value in values)
            lines.append(f"{padded_text(row, margin, right=True)}  {''.join(drawn)} {shown}")
        lines.append(f"{' ' * margin}  {padded_text(number(ticks[0]), room - 6)}{number(ticks[-1]):>6}")
        named = [f"{mark} {cut_label(name, LONGEST)}" for mark, name in zip(MARKS, self.dots, strict=False)]
        return "\n".join(lines if alone else [*lines, *wrapped_text(named, named, width)])
