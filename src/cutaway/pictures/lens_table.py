"""The lens: what each layer would say if it were the last, at each position."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.colour import Scale, text_colour
from cutaway.pictures.heat_map import DRAWN, HeatMap
from cutaway.pictures.html import Table, scroller
from cutaway.pictures.picture import Picture, set_field
from cutaway.pictures.picture_data import check_names, check_numbers, number, quoted, visible_text
from cutaway.pictures.svg import Markup, axis_names, cut_label, document, hatch, legend, tag, text_label
from cutaway.pictures.terminal import COLOURS, ansi_coloured, level, padded_text

CELL = 9  # letters of a token in its cell


@dataclass(frozen=True, eq=False)
class LensGrid(Picture):
    """Layer × position: the likeliest token, coloured by its probability, or by whatever `values` are (`what`).

    LensGrid(tokens, probabilities, positions=text, layers=names)    # the last layer is drawn on top
    """

    kind: ClassVar[str] = "lens"

    tokens: Sequence[Sequence[str]]  # layer position
    values: Any  # layer position
    positions: Sequence[str] = ()
    layers: Sequence[str] = ()
    title: str = ""
    what: str = "probability"
    low: int | float | None = 0.0
    high: int | float | None = None

    def __post_init__(self) -> None:
        values = check_numbers("the values of a lens", self.values, "layer", "position")
        n_layers, n_positions = values.shape
        if len(self.tokens) != n_layers:
            raise InputError(f"the tokens of a lens: {len(self.tokens)} layers, but the values have {n_layers}")
        if any(len(row) != n_positions for row in self.tokens):
            raise InputError(f"the tokens of a lens: each layer needs {n_positions}, one for each position")
        set_field(self, "values", values)
        set_field(self, "tokens", tuple(check_names("the tokens", row, n_positions) for row in self.tokens))
        set_field(self, "positions", check_names("the positions", self.positions, n_positions))
        set_field(self, "layers", check_names("the layers", self.layers, n_layers))

    @cached_property
    def scale(self) -> Scale:
        high = 1.0 if self.high is None and self.what == "probability" else self.high
        return Scale.of(self.values, "sequential", self.low, high)

    def sentence(self) -> str:
        n_layers, n_positions = self.values.shape
        first, last = self.tokens[0], self.tokens[-1]
        said = f"{n_layers} layers × {n_positions} positions; colours are the {self.what}."
        said += f" At the last position, it says {quoted(first[-1])} in row {quoted(self.layers[0])},"
        said += f" {quoted(last[-1])} ({number(float(self.values[-1, -1]))}) in row {quoted(self.layers[-1])}."
        settled = sum(self.settles(position) == 0 for position in range(n_positions))
        return f"{said} {settled} of {n_positions} positions keep one token through all layers."

    def settles(self, position: int) -> int:
        """The layer from which on the token stays that of the last."""
        column = [row[position] for row in self.tokens]
        return next((layer + 1 for layer in range(len(column) - 2, -1, -1) if column[layer] != column[-1]), 0)

    def table(self) -> Table:
        """For each position: what the last layer says, and from which layer on."""
        rows = []
        for position, name in enumerate(self.positions):
            value = number(float(self.values[-1, position]))
            rows.append([name, str(position), self.tokens[-1][position], value, self.layers[self.settles(position)]])
        return ["position", "number", "the last layer says", self.what, "said from"], rows

    def body(self) -> Markup:
        """A table is the picture: it can be read aloud, searched and scrolled, and its names stay in view."""
        head = tag("tr", tag("th", ""), *(tag("th", tag("bdi", name), scope="col") for name in self.positions))
        lines = []
        for layer in reversed(range(len(self.layers))):
            row = [tag("th", tag("bdi", self.layers[layer]), scope="row")]
            colours = self.scale.colours(self.values[layer])
            for token, colour in zip(self.tokens[layer], colours, strict=True):
                pale = ("pale" if text_colour(colour) == "#ffffff" else None) if colour else "none"
                row.append(
                    tag("td", cut_label(token, 14), class_=pale, style=f"background:{colour}" if colour else None)
                )
            lines.append(tag("tr", *row))
        grid = tag("table", tag("thead", head), tag("tbody", *lines), class_="lens")
        key = document((400, 40), "Colours", "The scale of the colours", *self.key(4.0, 6.0))
        return tag("div", scroller(grid, self.heading), tag("div", key, class_="view key"))

    def key(self, x: float, y: float) -> list[Markup]:
        return [legend(self.scale, x, y, not np.isfinite(self.values).all(), self.what)]

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        n_layers, n_positions = self.values.shape
        if self.values.size > DRAWN:
            drawn = HeatMap(
                self.values[::-1],
                self.layers[::-1],
                self.positions,
                self.title,
                "layer",
                "position",
                self.what,
                "sequential",
                self.scale.low,
                self.scale.high,
            )
            return drawn.drawing()
        wide, high, left, top = 66.0, 23.0, axis_names(self.layers) + 20, 30.0
        parts = [
            text_label(name, left + (i + 0.5) * wide, top - 8, CELL, text_anchor="middle", class_="strong")
            for i, name in enumerate(self.positions)
        ]
        for row, layer in enumerate(reversed(range(n_layers))):
            y = top + row * high
            parts.append(text_label(self.layers[layer], left - 8, y + 15, text_anchor="end"))
            colours = self.scale.colours(self.values[layer])
            for i, (token, colour) in enumerate(zip(self.tokens[layer], colours, strict=True)):
                x = left + i * wide
                said = tag(
                    "title",
                    f"{self.layers[layer]}, {self.positions[i]}: {token} {number(float(self.values[layer, i]))}",
                )
                box = {"x": x, "y": y, "width": wide - 1, "height": high - 1}
                back = tag("rect", fill=colour, **box) if colour else hatch(x, y, wide - 1, high - 1, 6)
                ink = None if colour is None else f"fill:{text_colour(colour)}"
                shown = tag(
                    "text",
                    cut_label(token, CELL),
                    x=x + wide / 2 - 0.5,
                    y=y + 15,
                    text_anchor="middle",
                    style=ink,
                    font_size=11,
                )
                parts.append(tag("g", said, back, shown))
        below = top + n_layers * high + 12
        return (max(left + n_positions * wide, left + 400), below + 34), [*parts, *self.key(left, below)]

    def text(self, width: int = 80, colour: bool = False) -> str:
        """As many positions as have room, the last ones, since the answer stands at the end."""
        margin = max(map(len, map(visible_text, self.layers)))
        wide = 10
        n = max(1, min(len(self.positions), (width - margin - 2) // (wide + 1)))
        first = len(self.positions) - n
        lines = [self.heading + (f" (the last {n} of {len(self.positions)} positions)" if first else "")]
        lines.append(" " * (margin + 2) + " ".join(padded_text(name, wide) for name in self.positions[first:]))
        for layer in reversed(range(len(self.layers))):
            shown = []
            for token, value in zip(self.tokens[layer][first:], self.values[layer, first:].tolist(), strict=True):
                text = padded_text(token, wide - 4) + padded_text(
                    f"{value:.2f}".lstrip("0") if np.isfinite(value) else "–", 4, right=True
                )
                shown.append(
                    ansi_coloured(text, COLOURS[level(value, self.scale)]) if colour and np.isfinite(value) else text
                )
            lines.append(padded_text(self.layers[layer], margin, right=True) + "  " + " ".join(shown))
        return "\n".join(line.rstrip() for line in lines)
