"""Circuits and the scores of heads and other writers, as pictures."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.reports.axes import strip_spaces
from cutaway.inside.reports.writers import Writers
from cutaway.pictures import CircuitGraph, HeatMap
from cutaway.pictures.picture_data import number, round_values

WRITERS = "block 2: 2.7 is attention head 7, 2.cross.1 cross head 1, 2.ff feed-forward"
NODE = re.compile(r"((?:en|de)coder)\.(\d+)\.(attention|cross|feed_forward)(\..+)?")


def draw_writers(found: Writers, *_: Any, title: str = "") -> HeatMap:
    """Layer × head of one output; of several, the strongest writers × outputs."""
    title = title or "Who wrote the answer: direct logit attribution"
    what = "logit of the answer − logit of its rival" if any(found.versus) else "logit"
    if len(found.outputs) == 1:
        (right,), (wrong,) = strip_spaces(found.outputs), strip_spaces(found.versus)
        what = f"logit of «{right}»" + (f" − logit of «{wrong}»" if wrong else "")
        return _by_layer(found.names, found.scores[:, 0].tolist(), title, what)
    some = found.best(24)
    values, names = [scores for _, scores in some], [short_name(name) for name, _ in some]
    what = f"{what}; {WRITERS}"
    return HeatMap(
        round_values(np.array(values)), names, strip_spaces(found.outputs), title, "writer", "output", what, "diverging"
    )


def draw_head_scores(found: HeadScores, *_: Any, title: str = "") -> HeatMap:
    title = title or f"Heads: {found.what}"
    return _by_layer(list(found.scores), list(found.scores.values()), title, "score", "auto")


def _by_layer(
    names: Sequence[str], scores: Sequence[float], title: str, what: str, colours: str = "diverging"
) -> HeatMap:
    """A row for each block, a column for each head and for what else a block writes; the rest stands above all."""
    cells: dict[tuple[tuple[str, str], str], float] = {}
    rest = 0.0
    for name, score in zip(names, scores, strict=True):
        found = re.fullmatch(r"((?:en|de)coder)\.(\d+)\.(attention|cross|feed_forward)(?:\.(\d+|bias))?", name)
        if found is None or found[4] == "bias":
            rest += score
            continue
        short = {"attention": "", "cross": "cross ", "feed_forward": "feed-forward"}[found[3]] + (found[4] or "")
        cells[(found[1], found[2]), short] = score
    rows = list(dict.fromkeys(row for row, _ in cells))
    columns = sorted({column for _, column in cells}, key=_by_kind)
    values = [[cells.get((row, column), float("nan")) for column in columns] for row in rows]
    note = what + (f"; embeddings and biases together {rest:+.3g}".replace("-", "−") if rest else "")
    several = len({side for side, _ in rows}) > 1
    named = [f"{side} {layer}" if several else layer for side, layer in rows]
    return HeatMap(round_values(np.array(values)), named, columns, title, "layer", "head", note, colours)


def _by_kind(column: str) -> tuple[bool, bool, int]:
    """Heads, cross heads, feed-forwards."""
    number = re.search(r"\d+", column)
    return number is None, not column.isdigit(), int(number[0]) if number else 0


def draw_circuit(found: Circuit, *_: Any, title: str = "") -> CircuitGraph:
    """The edges that were measured; where none were, each node with its effect or score, and no lines."""
    edges, effects = found.edges, {} if found.edges else found.effects
    ends = [end for end in ("input", "logits") if any(end in edge[:2] for edge in edges)]
    names = [*found.nodes, *ends]
    both = len({node.split(".")[0] for node in found.nodes}) > 1
    # the decoder stands above all of an encoder: it reads what comes out at its top
    below = 1 + max((_layer(node) for node in found.nodes if node.startswith("encoder")), default=-1) if both else 0
    plain = {node: _layer(node) + below * node.startswith("decoder") for node in found.nodes}
    fine = any(a in plain and b in plain and plain[a] >= plain[b] for a, b, _ in edges)
    layers = {node: 3 * layer + _within(node) if fine else layer for node, layer in plain.items()}
    named = {layer: _block(node, fine=fine, side=both) for node, layer in layers.items()}
    top = max(layers.values(), default=0) + 1
    layers |= {"input": -1, "logits": top}
    named |= {-1: "input", top: "output"}
    shown = {
        node: " ".join(
            filter(None, [short_name(node), found.roles.get(node), number(effects[node], 2) if node in effects else ""])
        )
        for node in found.nodes
    }
    lines = [(names.index(a), names.index(b), weight) for a, b, weight in edges]
    return CircuitGraph(
        [shown.get(name, name) for name in names],
        [layers[name] for name in names],
        lines,
        title or f"Circuit: {found.name}",
        "effect on the metric",
        [named[layer] for layer in sorted({layers[name] for name in names})],
    )


def _layer(node: str) -> int:
    return int(node.split(".")[1])


def _within(node: str) -> int:
    """Attention, cross-attention and feed-forward of a block, one above the other."""
    return ("attention", "cross", "feed_forward").index(node.split(".")[2])


def _block(node: str, *, fine: bool, side: bool) -> str:
    own, number, part = node.split(".")[:3]
    return (f"{own} " if side else "") + f"block {number}" + (f" {part.replace('_', '-')}" if fine else "")


def short_name(node: str) -> str:
    """`decoder.3.attention.7` is 3.7, `decoder.3.cross.7` 3.cross.7, `decoder.3.feed_forward` 3.ff.

    >>> short_name("decoder.3.attention.7")
    """
    found = re.fullmatch(r"((?:en|de)coder)\.(\d+)\.(attention|cross|feed_forward)(\..+)?", node)
    if found is None:
        return re.sub(r"^decoder\.|^target_", "", node)
    middle = {"attention": "", "cross": ".cross", "feed_forward": ".ff"}[found[3]]
    return f"{'encoder.' if found[1] == 'encoder' else ''}{found[2]}{middle}{found[4] or ''}"
