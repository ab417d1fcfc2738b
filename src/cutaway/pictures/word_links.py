"""Words: lines from words to the words they look at, a sentence coloured by what counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.pictures.colour import Scale, text_colour
from cutaway.pictures.heat_map import DRAWN, HeatMap
from cutaway.pictures.html import Table
from cutaway.pictures.picture import Picture, set_field, strongest, value_range
from cutaway.pictures.picture_data import check_names, check_numbers, number, quoted, visible_text
from cutaway.pictures.svg import (
    Markup,
    axis_names,
    cells,
    cut_label,
    document,
    legend,
    plain,
    tag,
    text_label,
    width_of,
)
from cutaway.pictures.terminal import COLOURS, WARM, ansi_coloured, level, padded_text, text_map, wrapped_text

ARCS = 1_500  # drawn at most, the strongest
LINE = 19.0


@dataclass(frozen=True, eq=False)
class Arcs(Picture):
    """Two columns of words, and from each on the left lines to where it looks: one head, or an alignment.

    Lines below `least` are left out, and all but the 1,500 strongest; the table has them all. Point at a word, or walk
    with the Tab key, and only its lines stay.
    """

    kind: ClassVar[str] = "arcs"
    role: ClassVar[str] = "group"

    values: Any  # query key
    queries: Sequence[str] = ()
    keys: Sequence[str] = ()
    title: str = ""
    query_name: str = "query"
    key_name: str = "key"
    least: int | float = 0.05

    def __post_init__(self) -> None:
        set_field(self, "values", check_numbers("the weights of arcs", self.values, self.query_name, self.key_name))
        set_field(self, "queries", check_names(f"the words ({self.query_name})", self.queries, self.values.shape[0]))
        set_field(self, "keys", check_names(f"the words ({self.key_name})", self.keys, self.values.shape[1]))

    @cached_property
    def drawn(self) -> list[tuple[int, ...]]:
        return [place for place in strongest(self.values, ARCS) if abs(self.values[place]) >= self.least]

    @cached_property
    def as_map(self) -> HeatMap:
        return HeatMap(self.values, self.queries, self.keys, self.title, self.query_name, self.key_name)

    def sentence(self) -> str:
        said = f"{self.as_map.sentence()} Drawn are {len(self.drawn):,} lines, none below {number(self.least)}."
        return said

    def table(self) -> Table:
        return self.as_map.table()

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        left, gap = max(axis_names(self.queries), width_of(self.query_name, 11)) + 14, 260.0
        right, top = left + gap, 42.0
        most = max((abs(float(self.values[place])) for place in self.drawn), default=1.0)
        lines: dict[int, list[Markup]] = {}
        for query, key in reversed(self.drawn):  # the strongest on top
            weight = float(self.values[query, key])
            y1, y2, middle = top + query * LINE, top + key * LINE, plain(left + gap / 2)
            path = (
                f"M{plain(left + 6)} {plain(y1)}"
                f"C{middle} {plain(y1)} {middle} {plain(y2)} {plain(right - 6)} {plain(y2)}"
            )
            share = abs(weight) / most
            said = tag("title", f"{quoted(self.queries[query])} → {quoted(self.keys[key])}: {number(weight)}")
            line = tag("path", d=path, stroke_width=0.6 + 3.4 * share, stroke_opacity=f"{0.12 + 0.83 * share:.2f}")
            lines.setdefault(query, []).append(tag("g", said, line, class_="s0" if weight >= 0 else "s1"))
        parts = [
            tag("text", self.query_name, x=left, y=14, text_anchor="end", class_="dim", font_size=11),
            tag("text", self.key_name, x=right, y=14, class_="dim", font_size=11),
        ]
        for key, word in enumerate(self.keys):
            parts.append(text_label(word, right, top + key * LINE + 4))
        for query, word in enumerate(self.queries):
            name = text_label(word, left, top + query * LINE + 4, text_anchor="end")
            inside = tag("g", *lines.get(query, ()), fill="none")
            weights = ", ".join(
                f"{visible_text(self.keys[key])} {number(self.values[q, key])}" for q, key in self.drawn if q == query
            )
            parts.append(
                tag("g", inside, name, class_="one", tabindex="0", role="img", aria_label=f"{word}: {weights or '–'}")
            )
        height = top + max(len(self.queries), len(self.keys)) * LINE
        return (right + max(axis_names(self.keys), width_of(self.key_name, 11)) + 14, height), parts

    def text(self, width: int = 80, colour: bool = False) -> str:
        return text_map(self.values, self.queries, self.keys, self.as_map.scale, width, colour, self.heading)

    def _repr_svg_(self) -> str:
        return self.svg()


@dataclass(frozen=True, eq=False)
class ColouredText(Picture):
    """A text whose words are coloured by what they did to each word of the output: for (blue) or against it (red).

    ColouredText(attribution, sources=words, outputs=translation)    # output source

    In the page, point at an output word or walk to it with the Tab key, and the source lights up for it.
    """

    kind: ClassVar[str] = "coloured text"

    values: Any  # output source
    sources: Sequence[str] = ()
    outputs: Sequence[str] = ()
    title: str = ""
    what: str = "attribution"

    def __post_init__(self) -> None:
        set_field(self, "values", check_numbers("the attribution", self.values, "output", "source"))
        set_field(self, "outputs", check_names("the outputs", self.outputs, self.values.shape[0]))
        set_field(self, "sources", check_names("the sources", self.sources, self.values.shape[1]))

    @cached_property
    def as_map(self) -> HeatMap:
        return HeatMap(self.values, self.outputs, self.sources, self.title, "output", "source", self.what, "diverging")

    @property
    def scale(self) -> Scale:
        return self.as_map.scale

    def sentence(self) -> str:
        said = value_range(self.values, "output × source")
        for output, source in strongest(self.values, 1):
            value = float(self.values[output, source])
            what = "speaks most for" if value >= 0 else "speaks most against"
            said += f" {quoted(self.sources[source])} {what} {quoted(self.outputs[output])}: {number(value)}."
        return f"{said} Blue speaks for the output word, red against it."

    def table(self) -> Table:
        return self.as_map.table()

    def row(self, output: int) -> list[Markup]:
        words = []
        values = self.values[output]
        for word, value, colour in zip(self.sources, values.tolist(), self.scale.colours(values), strict=True):
            style = (
                f"background:{colour};color:{text_colour(colour)}" if colour else "text-decoration:line-through dotted"
            )
            words += [tag("bdi", word, style=style, title=number(value)), Markup("&#8203;")]
        return words

    def body(self) -> Markup:
        """A row to choose from, the source for the row that is chosen, and without a script all rows, or the map."""
        buttons: list[Markup] = []
        for i, word in enumerate(self.outputs):
            pressed = "true" if i == 0 else "false"
            buttons += [
                tag("button", tag("bdi", word), type="button", data_at=str(i), aria_pressed=pressed),
                Markup(" "),
            ]
        palette = self.scale.palette()[3:].hex()
        source = tag("div", *self.row(0), class_="words sources", data_palette=palette, data_high=repr(self.scale.high))
        size, parts = self.legend_alone()
        key = document(size, "Colours", "The scale of the colours", *parts)
        chosen = [
            tag("p", "Output", class_="name"),
            tag("div", *buttons, class_="words outputs"),
            tag("p", "Source", class_="name"),
            source,
        ]
        if self.values.size > DRAWN:
            return tag("div", *chosen, tag("div", key, class_="view"), self.as_map.body())
        lines = [
            tag("tr", tag("th", tag("bdi", word), scope="row"), tag("td", *self.row(i)))
            for i, word in enumerate(self.outputs)
        ]
        every_row = tag("details", tag("summary", "Every output word"), tag("table", *lines, class_="rows"), open="")
        return tag("div", *chosen, tag("div", key, class_="view"), every_row if len(self.outputs) > 1 else "")

    def legend_alone(self) -> tuple[tuple[float, float], list[Markup]]:
        return (max(420.0, 250 + width_of(self.what, 11) + 110), 40.0), [
            legend(self.scale, 4, 6, not np.isfinite(self.values).all(), self.what)
        ]

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        return self.as_map.drawing()

    def text(self, width: int = 80, colour: bool = False) -> str:
        if self.values.size > DRAWN:
            return self.as_map.text(width, colour)
        lines = [cut_label(self.heading, width)]
        margin = min(max(map(cells, map(visible_text, self.outputs))), 18)
        for output, line in zip(self.outputs, self.values.tolist(), strict=True):
            said = wrapped_text(self.marked(line, False), self.marked(line, colour), width - margin - 2)
            names = [output, *[""] * (len(said) - 1)]
            lines += [
                f"{padded_text(name, margin, right=True)}  {some}" for name, some in zip(names, said, strict=True)
            ]
        return "\n".join([*lines, "+ for the output word, − against it; more signs, more so"])

    def marked(self, line: Sequence[float], colour: bool) -> list[str]:
        """Words with their signs; a number that is not finite is –."""
        words = []
        for word, value in zip(self.sources, line, strict=True):
            strength = level(value, self.scale) if np.isfinite(value) else 0
            sign = ("+" if strength > 0 else "−") * (abs(strength) - 1) if np.isfinite(value) else "–"
            text = f"{cut_label(word, 24)}{sign}"
            words.append(ansi_coloured(text, (COLOURS if strength > 0 else WARM)[abs(strength)]) if colour else text)
        return words
