"""Heat maps: a colour for each number of a matrix, whatever it is of, and the axes that other pictures share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.pictures.colour import Scale, text_colour
from cutaway.pictures.html import Table
from cutaway.pictures.picture import Picture, set_field, strongest, value_range
from cutaway.pictures.picture_data import check_names, check_numbers, number, quoted, round_values
from cutaway.pictures.svg import Markup, axis_names, hatch, label_step, legend, pixels, tag, text_label, width_of
from cutaway.pictures.terminal import text_map

DRAWN = 2_500  # cells that are drawn one by one and have a table; more are pixels of one image
ROOM = 760.0
ROW = 32  # letters of a row's name: `decoder.12.attention.17` stays whole


@dataclass(frozen=True, eq=False)
class HeatMap(Picture):
    """Rows × columns: a pattern, a sweep, an attribution, an alignment.

        HeatMap(effect, rows=layers, columns=tokens, title="Patching the residual stream")

    `colours` is "sequential", "diverging" or by the numbers; `low` and `high` are the ends of the scale; `root` spreads
    small numbers. `digits` writes each number into its cell; None does where there is room.
    """

    kind: ClassVar[str] = "heat map"

    values: Any  # numpy, torch or lists: row column
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    title: str = ""
    row_name: str = "row"
    column_name: str = "column"
    what: str = ""
    colours: str = "auto"
    low: int | float | None = None
    high: int | float | None = None
    root: bool = False
    digits: bool | None = None

    def __post_init__(self) -> None:
        values = check_numbers("the values of a heat map", self.values, self.row_name, self.column_name)
        set_field(self, "values", values)
        set_field(self, "rows", check_names(f"the rows ({self.row_name})", self.rows, values.shape[0]))
        set_field(self, "columns", check_names(f"the columns ({self.column_name})", self.columns, values.shape[1]))

    @cached_property
    def scale(self) -> Scale:
        return Scale.of(self.values, self.colours, self.low, self.high, self.root)

    def place(self, row: int, column: int) -> str:
        return f"{self.row_name} {quoted(self.rows[row])} → {self.column_name} {quoted(self.columns[column])}"

    def sentence(self) -> str:
        said = value_range(self.values, self.what)
        for place in strongest(self.values, 1):
            said += f" The strongest, {number(self.values[place])}, is {self.place(*place)}."
        return said

    def table(self) -> Table:
        if self.values.size <= DRAWN:
            rows = [[row, *map(number, line)] for row, line in zip(self.rows, self.values.tolist(), strict=True)]
            return [f"{self.row_name} → {self.column_name}", *self.columns], rows
        found = strongest(self.values, 100)
        rows = [[self.rows[r], self.columns[c], str(r), str(c), number(self.values[r, c])] for r, c in found]
        return [self.row_name, self.column_name, "its row", "its column", "the 100 strongest"], rows

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        grid = Grid.of(self.rows, self.columns, self.digits, self.row_name)
        parts = grid.axes(self.row_name, self.column_name)
        holes = not np.isfinite(self.values).all()
        if holes and self.values.size > DRAWN:  # behind the pixels
            parts.append(hatch(grid.left, grid.top, grid.width, grid.height))
        parts += self.cells(grid) if self.values.size <= DRAWN else [grid.image(self.scale.image(self.values))]
        below = grid.top + grid.height + 16
        parts.append(legend(self.scale, grid.left, below, holes, self.what))
        least = grid.left + 240 + (width_of(self.what, 11) + 14 if self.what else 0) + (100 if holes else 0)
        return (max(grid.left + grid.width + grid.right, least), below + 34), parts

    def cells(self, grid: "Grid") -> list[Markup]:
        parts = []
        colours = iter(self.scale.colours(self.values))
        short = round_values(self.values)
        for r, line in enumerate(self.values.tolist()):
            for c, value in enumerate(line):
                colour, (x, y) = next(colours), grid.corner(r, c)
                said = tag("title", f"{self.place(r, c)}: {number(value)}")
                if colour is None:
                    catch = tag("rect", x=x, y=y, width=grid.cell[0], height=grid.cell[1], fill="transparent")
                    parts.append(tag("g", said, hatch(x, y, *grid.cell), catch))
                    continue
                box = tag(
                    "path", d=f"M{x:.1f} {y:.1f}h{grid.cell[0] - grid.gap:.2f}v{grid.cell[1] - grid.gap:.2f}H{x:.1f}z"
                )
                inside = [said, box]
                if grid.digits:
                    middle = (x + grid.cell[0] / 2, y + grid.cell[1] / 2 + 4)
                    shown = number(short[r, c], 2)
                    inside.append(
                        tag(
                            "text",
                            shown,
                            x=middle[0],
                            y=middle[1],
                            text_anchor="middle",
                            font_size=11,
                            style=f"fill:{text_colour(colour)}",
                        )
                    )
                parts.append(tag("g", *inside, fill=colour))
        return [tag("g", *parts, class_="cells")]

    def text(self, width: int = 80, colour: bool = False) -> str:
        return text_map(self.values, self.rows, self.columns, self.scale, width, colour, self.heading)


@dataclass(frozen=True)
class Grid:
    """Where the cells of a matrix are drawn, and its axes."""

    rows: Sequence[str]
    columns: Sequence[str]
    cell: tuple[float, float]
    digits: bool
    left: float
    top: float
    right: float
    slant: int  # degrees of the columns' names

    @classmethod
    def of(cls, rows: Sequence[str], columns: Sequence[str], digits: bool | None, row_name: str) -> "Grid":
        n_rows, n_columns = len(rows), len(columns)
        if digits is None:
            digits = n_rows * n_columns <= 240 and n_columns <= 16
        wide = min(max(ROOM / n_columns, 1.4), 46.0)
        high = min(max(ROOM / n_rows, 1.4), 24.0)
        if digits:
            wide = max(wide, 44.0)
        elif n_rows == n_columns:
            wide = high = min(wide, high)
        wide, high = (float(int(side)) if side >= 4 else side for side in (wide, high))
        longest = axis_names(columns)
        slant = 0 if longest <= wide - 5 else 45 if wide >= 15 else 90
        above = {0: 18.0, 45: longest * 0.71 + 16, 90: longest + 12}[slant]
        right = {0: 8.0, 45: longest * 0.71 + 4, 90: 10.0}[slant]
        left = max(axis_names(rows, ROW) + 16, width_of(row_name, 11) + 30)
        return cls(rows, columns, (wide, high), digits, left, above + 20, right, slant)

    @property
    def width(self) -> float:
        return self.cell[0] * len(self.columns)

    @property
    def height(self) -> float:
        return self.cell[1] * len(self.rows)

    @property
    def gap(self) -> float:
        return 1.0 if min(self.cell) >= 10 else 0.0

    def corner(self, row: int, column: int) -> tuple[float, float]:
        return self.left + column * self.cell[0], self.top + row * self.cell[1]

    def image(self, uri: str) -> Markup:
        box = {"x": self.left, "y": self.top, "width": self.width, "height": self.height}
        return pixels(uri, **box, class_="pixels")

    def axes(self, row_name: str, column_name: str) -> list[Markup]:
        """The names of rows and columns, as many as have room, and an empty frame that the script reads places from."""
        across, down = self.cell
        parts = [
            tag("text", f"{column_name} →", x=self.left, y=12, class_="dim", font_size=11),
            tag("text", f"{row_name} ↓", x=self.left - 8, y=12, class_="dim", font_size=11, text_anchor="end"),
            tag("rect", x=self.left, y=self.top, width=self.width, height=self.height, fill="none", class_="plot"),
        ]
        for row in range(0, len(self.rows), label_step(len(self.rows), down)):
            y = self.top + (row + 0.5) * down + 4
            parts.append(text_label(self.rows[row], self.left - 8, y, ROW, text_anchor="end"))
        y = self.top - 6
        for column in range(0, len(self.columns), label_step(len(self.columns), across)):
            x = self.left + (column + 0.5) * across
            if self.slant == 0:
                parts.append(text_label(self.columns[column], x, y, text_anchor="middle"))
            else:
                x += 4 if self.slant == 90 else 2
                turn = f"rotate({-self.slant} {x:.1f} {y:.1f})"
                parts.append(text_label(self.columns[column], x, y, transform=turn))
        return parts
