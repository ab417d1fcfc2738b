"""Circuits: nodes by layer and weighted lines between them, upwards from the text to the logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.html import Table
from cutaway.pictures.picture import Picture, set_field
from cutaway.pictures.picture_data import check_names, check_numbers, number, visible_text
from cutaway.pictures.svg import Markup, Value, cut_label, plain, tag, text_label, width_of

NODES, EDGES = 600, 1_500
DOWN = 74.0
NAME = 30  # letters of a node


@dataclass(frozen=True, eq=False)
class CircuitGraph(Picture):
    """Nodes with a layer each, and edges (from, to, weight) by the nodes' places in the list.

        CircuitGraph(["embedding", "0.3", "1.7", "logits"], [-1, 0, 1, 2], [(0, 1, 0.4), (1, 2, 0.9), (2, 3, -0.2)])

    An edge goes up, from a lower layer to a higher one. Of many edges the 1,500 strongest are drawn; the table has all.
    """

    kind: ClassVar[str] = "circuit"
    role: ClassVar[str] = "group"

    nodes: Sequence[str]
    layers: Sequence[int]
    edges: Any  # edge (from, to, weight)
    title: str = ""
    what: str = "weight"
    layer_names: Sequence[str] = ()  # from below; numbers unless given

    def __post_init__(self) -> None:
        if not len(self.nodes):
            raise InputError("the nodes of a circuit are empty: give at least one")
        if len(self.nodes) > NODES:
            raise InputError(f"{len(self.nodes)} nodes are more than {NODES}: leave the weakest out")
        set_field(self, "nodes", check_names("the nodes", self.nodes, len(self.nodes)))
        if len(self.layers) != len(self.nodes):
            raise InputError(f"the layers: {len(self.layers)} for {len(self.nodes)} nodes; give one for each")
        set_field(self, "layers", tuple(map(int, self.layers)))
        n = len(set(self.layers))
        if self.layer_names and len(self.layer_names) != n:
            raise InputError(f"the names of layers: {len(self.layer_names)} for {n}; give one for each, from below")
        set_field(self, "layer_names", tuple(map(str, self.layer_names)))
        given = self.edges if len(self.edges) else np.zeros((0, 3))
        edges = np.zeros((0, 3)) if not len(given) else check_numbers("the edges", given, "edge", "from, to, weight")
        if edges.shape[1] != 3:
            raise InputError(f"an edge is (from, to, weight): these have {edges.shape[1]} numbers")
        for start, end in edges[:, :2].tolist():
            if not (start in range(len(self.nodes)) and end in range(len(self.nodes))):
                raise InputError(f"the edge {start:g} → {end:g}: nodes are numbered 0…{len(self.nodes) - 1}")
            if self.layers[int(start)] >= self.layers[int(end)]:
                a, b = self.nodes[int(start)], self.nodes[int(end)]
                low, high = self.layers[int(start)], self.layers[int(end)]
                raise InputError(f"the edge {a} → {b} does not go up: its layers are {low} and {high}")
        set_field(self, "edges", edges)

    @cached_property
    def by_strength(self) -> list[tuple[int, int, float]]:
        """Edges with a finite weight, the strongest first; those without one last."""
        listed = [(int(a), int(b), float(w)) for a, b, w in self.edges.tolist()]
        return sorted(listed, key=lambda edge: -abs(edge[2]) if np.isfinite(edge[2]) else 1.0)

    def sentence(self) -> str:
        said = f"{len(self.nodes)} nodes in {len(set(self.layers))} layers, {len(self.edges):,} edges."
        if not len(self.edges):
            return said.replace("0 edges", "and no edges: who speaks to whom was not measured")
        if len(self.edges) > EDGES:
            said += f" The {EDGES:,} strongest are drawn."
        if self.by_strength and np.isfinite(self.by_strength[0][2]):
            a, b, weight = self.by_strength[0]
            said += (
                f" The strongest is {visible_text(self.nodes[a])} → {visible_text(self.nodes[b])}: {number(weight)}."
            )
        return f"{said} Blue adds, orange takes away, dotted has no number."

    def table(self) -> Table:
        rows = [[self.nodes[a], self.nodes[b], number(weight)] for a, b, weight in self.by_strength]
        return ["from", "to", self.what], rows or [[node, "–", "–"] for node in self.nodes]

    def ordered(self) -> dict[int, list[int]]:
        """Nodes of each layer from left to right: a few sweeps put each near the nodes it is tied to."""
        rows: dict[int, list[int]] = {layer: [] for layer in sorted(set(self.layers))}
        for node, layer in enumerate(self.layers):
            rows[layer].append(node)
        ties: dict[int, list[tuple[int, float]]] = {node: [] for node in range(len(self.nodes))}
        for a, b, weight in self.by_strength[:EDGES]:
            strength = abs(weight) if np.isfinite(weight) else 0.0
            ties[a].append((b, strength))
            ties[b].append((a, strength))
        at = {node: (i + 0.5) / len(row) for row in rows.values() for i, node in enumerate(row)}
        for _ in range(8):
            for row in rows.values():
                wish = {}
                for node in row:
                    total = sum(strength for _, strength in ties[node])
                    wish[node] = sum(at[other] * s for other, s in ties[node]) / total if total else at[node]
                row.sort(key=lambda node: (wish[node], node))
                at |= {node: (i + 0.5) / len(row) for i, node in enumerate(row)}
        return rows

    def places(self) -> tuple[dict[int, tuple[float, float]], float, float]:
        rows = self.ordered()
        wide = {node: max(34.0, width_of(cut_label(name, NAME)) + 16) for node, name in enumerate(self.nodes)}
        width = max(max(sum(wide[n] + 26 for n in row) for row in rows.values()), 320.0)
        where = {}
        for up, row in enumerate(reversed(rows.values())):
            free = width - sum(wide[n] for n in row)
            aside = 14 if up % 2 else -14  # so that nodes do not stand in one column
            x = self.margin + free / (2 * len(row)) + aside
            for node in row:
                where[node] = (x + wide[node] / 2, 24 + up * DOWN)
                x += wide[node] + free / len(row)
        return where, self.margin + width + 44, 24 + (len(rows) - 1) * DOWN + 30

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        where, width, height = self.places()
        most = max((abs(w) for _, _, w in self.by_strength if np.isfinite(w)), default=1.0) or 1.0
        parts = []
        for layer, y in sorted({(layer, where[node][1]) for node, layer in enumerate(self.layers)}):
            rule = tag(
                "path", d=f"M{plain(self.margin - 38)} {plain(y)}H{plain(width)}", class_="rule", stroke_dasharray="1 5"
            )
            parts += [rule, tag("text", self.layer_name(layer), x=4, y=y + 4, class_="dim", font_size=11)]
        for a, b, weight in reversed(self.by_strength[:EDGES]):
            (x1, y1), (x2, y2) = where[a], where[b]
            past = (y1 - y2) / DOWN - 1  # rows that it passes; it bows around their nodes
            bow = min(24 * past, 70.0) * (1 if x1 + x2 >= width + 60 else -1)
            bend = (y1 - y2) * 0.45
            corners = [(x1, y1 - 12), (x1 + bow, y1 - bend), (x2 + bow, y2 + bend), (x2, y2 + 12)]
            start, *rest = (f"{plain(x)} {plain(y)}" for x, y in corners)
            d = f"M{start}C{' '.join(rest)}"
            share = abs(weight) / most if np.isfinite(weight) else 0.0
            look: dict[str, Value] = {
                "class_": ("s0" if weight >= 0 else "s1") if np.isfinite(weight) else "hatch",
                "stroke_width": 0.8 + 5 * share,
                "stroke_opacity": f"{0.25 + 0.65 * share:.2f}",
                "stroke_dasharray": None if np.isfinite(weight) else "1 3",
            }
            said = tag("title", f"{visible_text(self.nodes[a])} → {visible_text(self.nodes[b])}: {number(weight)}")
            parts.append(
                tag("g", said, tag("path", d=d, fill="none", **look), class_="edge", data_from=str(a), data_to=str(b))
            )
        for node, name in enumerate(self.nodes):
            x, y = where[node]
            wide = max(34.0, width_of(cut_label(name, NAME)) + 16)
            box = tag("rect", x=x - wide / 2, y=y - 12, width=wide, height=24, rx=6, class_="node")
            inside = [box, text_label(name, x, y + 4, NAME, text_anchor="middle")]
            parts.append(
                tag(
                    "g",
                    *inside,
                    tabindex="0",
                    role="img",
                    aria_label=self.ties(node),
                    class_="dot",
                    data_node=str(node),
                )
            )
        return (width, height), parts

    @cached_property
    def margin(self) -> float:
        """Room for the names of layers."""
        return 54 + max(width_of(self.layer_name(layer), 11) for layer in set(self.layers))

    def layer_name(self, layer: int) -> str:
        if self.layer_names:
            return self.layer_names[sorted(set(self.layers)).index(layer)]
        return f"layer {layer}" if layer >= 0 else "input"

    def ties(self, node: int) -> str:
        into = [f"{self.nodes[a]} {number(w)}" for a, b, w in self.by_strength if b == node][:8]
        out = [f"{self.nodes[b]} {number(w)}" for a, b, w in self.by_strength if a == node][:8]
        return f"{self.nodes[node]}; from {', '.join(into) or 'nowhere'}; to {', '.join(out) or 'nowhere'}"

    def text(self, width: int = 80, colour: bool = False) -> str:
        lines = [self.heading]
        most = max((abs(w) for _, _, w in self.by_strength if np.isfinite(w)), default=1.0) or 1.0
        for a, b, weight in self.by_strength[:40]:
            bar = ("█" if weight >= 0 else "▒") * round(20 * abs(weight) / most) if np.isfinite(weight) else ""
            lines.append(
                f"{cut_label(self.nodes[a], 20):>20} → {cut_label(self.nodes[b], 20):<20} {number(weight):>8}  {bar}"[
                    :width
                ].rstrip()
            )
        if not self.by_strength:
            for layer, row in reversed(self.ordered().items()):
                lines.append(
                    f"{self.layer_name(layer):>12}  " + ", ".join(visible_text(self.nodes[node]) for node in row)
                )
        if len(self.by_strength) > 40:
            lines.append(f"… and {len(self.by_strength) - 40:,} weaker edges")
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        return self.svg()
