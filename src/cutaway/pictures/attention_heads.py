"""Heads: a thumbnail of every attention pattern, layer × head, and one of them large.

A thumbnail of a long text is pooled: each of its pixels is the strongest of its neighbours. The large one is exact for
the heads that were asked for; the page shows any other as large as its thumbnail can be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.colour import Scale, max_pool
from cutaway.pictures.heat_map import Grid, HeatMap
from cutaway.pictures.html import Table, scroller
from cutaway.pictures.picture import Picture, set_field
from cutaway.pictures.picture_data import Array, check_names, check_numbers, number, visible_text
from cutaway.pictures.svg import Markup, cut_label, document, hatch, legend, pixels, tag, text_label
from cutaway.pictures.terminal import BLOCKS, shaded_block

THUMB = 64  # pixels of a thumbnail, at most


def head_maps(
    patterns: Any,
    queries: Sequence[str] = (),
    keys: Sequence[str] = (),
    *,
    title: str = "",
    layers: Sequence[str] = (),
    show: Sequence[tuple[int, int]] = (),
    root: bool = True,
) -> "Heads":
    """All heads of a pass: `patterns` is layer head query key, or a list with one pattern per layer.

    `show` says which heads, as (layer, head), are kept exactly; the first is open at first. Without it that is the head
    that looks furthest from itself and from the first token, where heads look that have nothing to do.
    """
    if isinstance(patterns, list | tuple) and patterns and hasattr(patterns[0], "shape"):
        if len({tuple(pattern.shape) for pattern in patterns}) > 1:
            raise InputError("the patterns of the layers have several shapes: give each layer head query key alike")
        patterns = np.stack([check_numbers("a pattern", p, "head", "query", "key", most=1 << 30) for p in patterns])
    values = check_numbers("the patterns", patterns, "layer", "head", "query", "key", most=1 << 30)
    n_layers, n_heads = values.shape[:2]
    for layer, head in show:
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise InputError(f"there is no head ({layer}, {head}): {n_layers} layers have {n_heads} heads each")
    small = max_pool(values, THUMB)
    chosen = list(show) or [_busiest(small)]
    whole = {} if small.shape == values.shape else {f"{a}.{b}": values[a, b].copy() for a, b in chosen}
    return Heads(small, whole, ".".join(map(str, chosen[0])), queries, keys, values.shape[2:], layers, title, root)


@dataclass(frozen=True, eq=False)
class Heads(Picture):
    """What `heads` makes. `small` has the thumbnails, `whole` the exact patterns of some heads, by "layer.head"."""

    kind: ClassVar[str] = "heads"

    small: Any
    whole: Mapping[str, Any]
    shown: str
    queries: Sequence[str]
    keys: Sequence[str]
    size: Sequence[int]  # how many queries and keys there are
    layers: Sequence[str] = ()
    title: str = ""
    root: bool = True

    def __post_init__(self) -> None:
        small = check_numbers("the thumbnails", self.small, "layer", "head", "query", "key")
        whole = {name: check_numbers(f"head {name}", value, "query", "key") for name, value in self.whole.items()}
        set_field(self, "small", small)
        set_field(self, "whole", whole)
        set_field(self, "size", tuple(map(int, self.size)))
        set_field(self, "queries", check_names("the queries", self.queries, self.size[0]))
        set_field(self, "keys", check_names("the keys", self.keys, self.size[1]))
        set_field(self, "layers", check_names("the layers", self.layers, small.shape[0]))

    @cached_property
    def scale(self) -> Scale:
        return Scale.of(self.small, root=self.root)

    @property
    def pools(self) -> tuple[int, int]:
        """How many queries and keys a pixel of a thumbnail stands for."""
        a, b = (-(-n // m) for n, m in zip(self.size, self.small.shape[2:], strict=True))
        return a, b

    def pattern(self, name: str) -> Array:
        """The pattern of "layer.head", exact if it is kept, else its thumbnail."""
        layer, head = map(int, name.split("."))
        return self.whole.get(name, self.small[layer, head])

    def named(self, name: str) -> str:
        layer, head = name.split(".")
        return f"layer {visible_text(self.layers[int(layer)])}, head {head}"

    def sentence(self) -> str:
        n_layers, n_heads = self.small.shape[:2]
        said = f"{n_layers} × {n_heads} heads, layer × head; each shows {self.size[0]} queries × {self.size[1]} keys."
        if self.pools != (1, 1):
            said += f" A pixel of a thumbnail is the strongest of {self.pools[0]} × {self.pools[1]} weights."
        return f"{said} Large: {self.named(self.shown)}."

    def table(self) -> Table:
        """For every head where its strongest weight is, and how large."""
        rows = []
        for (layer, head), most in np.ndenumerate(
            np.nanmax(np.where(np.isfinite(self.small), self.small, -np.inf), (2, 3))
        ):
            pattern = self.small[layer, head]
            at = np.unravel_index(int(np.where(np.isfinite(pattern), pattern, -np.inf).argmax()), pattern.shape)
            query, key = (int(i) * step for i, step in zip(at, self.pools, strict=True))
            rows.append(
                [
                    self.layers[layer],
                    str(head),
                    number(float(most)),
                    self.queries[query],
                    self.keys[key],
                    f"{query} → {key}",
                ]
            )
        return ["layer", "head", "strongest", "query", "key", "positions"], rows

    def large(self) -> HeatMap:
        """The open head as a heat map of its own; with all its numbers if they are kept."""
        pattern, exact = self.pattern(self.shown), self.shown in self.whole or self.pools == (1, 1)
        queries, keys = (self.queries, self.keys) if exact else ((), ())
        return HeatMap(
            pattern, queries, keys, title=self.named(self.shown), row_name="query", column_name="key",
            low=self.scale.low, high=self.scale.high, root=self.root, colours="sequential", digits=False,
        )  # fmt: skip

    def body(self) -> Markup:
        n_layers, n_heads = self.small.shape[:2]
        grid = [tag("span", ""), *(tag("span", str(head)) for head in range(n_heads))]
        for layer in range(n_layers):
            grid.append(tag("span", self.layers[layer]))
            for head in range(n_heads):
                name = f"{layer}.{head}"
                picture = tag("img", src=self.scale.image(self.small[layer, head]), alt="")
                pressed = "true" if name == self.shown else "false"
                grid.append(
                    tag(
                        "button",
                        picture,
                        type="button",
                        data_at=name,
                        aria_pressed=pressed,
                        aria_label=self.named(name),
                    )
                )
        columns = f"grid-template-columns:max-content repeat({n_heads},minmax(30px,72px))"
        which = tag("p", self.named(self.shown), class_="which")
        thumbs = tag("div", *grid, class_="heads", style=columns)
        return tag("div", thumbs, tag("div", which, self.large_drawing(), class_="large"), class_="beside")

    def large_drawing(self) -> Markup:
        """Axes for all queries and keys; whichever head is chosen lies on them."""
        axes = Grid.of(self.queries, self.keys, False, "query")
        pattern = self.pattern(self.shown)
        holes = not np.isfinite(self.small).all()
        parts = axes.axes("query", "key")
        if holes:
            parts.append(hatch(axes.left, axes.top, axes.width, axes.height))
        below = axes.top + axes.height + 16
        parts += [axes.image(self.scale.image(pattern)), legend(self.scale, axes.left, below, holes, "weight")]
        size = (max(axes.left + axes.width + axes.right, axes.left + 400), below + 34)
        name = self.named(self.shown)
        return scroller(document(size, name, self.large().sentence(), *parts), name)

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        """All thumbnails; for one head as a file of its own there is `large()`."""
        n_layers, n_heads = self.small.shape[:2]
        step, left, top = 76.0, 14.0 + 7 * max(map(len, self.layers)), 40.0
        parts = [tag("text", "head →", x=left, y=12, class_="dim", font_size=11)]
        holes = not np.isfinite(self.small).all()
        for head in range(n_heads):
            parts.append(tag("text", str(head), x=left + (head + 0.5) * step, y=top - 8, text_anchor="middle"))
        for layer in range(n_layers):
            y = top + layer * step
            parts.append(text_label(self.layers[layer], left - 8, y + step / 2, text_anchor="end"))
            for head in range(n_heads):
                x = left + head * step
                if holes:
                    parts.append(hatch(x, y, step - 6, step - 6, 5))
                uri = self.scale.image(self.small[layer, head])
                name = tag("title", self.named(f"{layer}.{head}"))
                box = {"x": x, "y": y, "width": step - 6, "height": step - 6}
                parts.append(tag("g", name, pixels(uri, **box)))
        below = top + n_layers * step + 10
        parts.append(legend(self.scale, left, below, holes, "weight"))
        return (max(left + n_heads * step, left + 400), below + 34), parts

    def text(self, width: int = 80, colour: bool = False) -> str:
        """A block for each head, the darker the stronger its strongest weight off the diagonal; then the open one."""
        strength = _strength(self.small)
        scale = Scale.of(strength)
        n = strength.shape[1]
        wide, gap, step = (2, " ", 1) if 3 * n + 12 <= width else (1, "", 5)
        numbers = "".join(f"{head:<{step * (wide + len(gap))}}" for head in range(0, n, step))
        lines = [
            cut_label(self.heading, width),
            f"the strongest look of each head, away from itself and the first token ({BLOCKS.strip()})",
            f"layer   {numbers}head",
        ]
        for name, line in zip(self.layers, strength.tolist(), strict=True):
            drawn = gap.join(shaded_block(value, scale, wide, colour) for value in line)
            lines.append(f"{visible_text(name):>5}   {drawn.rstrip()}")
        return "\n".join([*lines, "", self.large().text(width, colour)])


def _strength(small: Array) -> Array:
    """How strongly each head looks at anything but the query itself and the first token; NaN without numbers."""
    away = np.where(np.isfinite(small), small, -np.inf)
    n_query, n_key = small.shape[2:]
    if n_key > 2 and n_query == n_key:
        away = away.copy()
        away[:, :, np.arange(n_query), np.arange(n_query)] = -np.inf
        away[..., 0] = -np.inf
    most = away.max(axis=-1)
    means = np.where(np.isfinite(most), most, 0).mean(axis=-1)
    return np.where(np.isfinite(small).any(axis=(2, 3)), means, np.nan)


def _busiest(small: Array) -> tuple[int, int]:
    strength = np.nan_to_num(_strength(small), nan=-1.0)
    layer, head = np.unravel_index(int(strength.argmax()), strength.shape)
    return int(layer), int(head)
