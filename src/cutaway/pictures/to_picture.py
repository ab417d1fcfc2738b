"""From results to pictures: what the tools found, with the words of the text in place of numbers.

    picture_of(logit_lens(model, ids), tokenizer, ids).save("lens.html")
    picture_of(sweep(model, clean, corrupted, metric), tokenizer, clean)
    picture_of(explain_next(model, tokenizer, text), tokenizer)

Tokens are named by what they add to the text, so that a page shows «für», never the bytes of a byte-level vocabulary.
"""

import re
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.alignment import Alignment
from cutaway.errors import InputError
from cutaway.inside.attribution.result import LOOKED, METHODS, Attribution, token_names
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.patching.sweep import Sweep
from cutaway.inside.report import Writers
from cutaway.inside.residual.logit_lens import Lens
from cutaway.inside.residual.stream import LogitWrites, Writes
from cutaway.pictures import Arcs, CircuitGraph, ColouredText, HeatMap, LensGrid, PatchEvidence, Picture
from cutaway.pictures.picture_data import number, tidy
from cutaway.tokens import Tokenizer

WRITERS = "block 2: 2.7 is attention head 7, 2.cross.1 cross head 1, 2.ff feed-forward"
SO_FAR = "‹…› is of the translation so far"


def token_words(tokenizer: Tokenizer | None, ids: Tensor | Sequence[int]) -> tuple[str, ...]:
    """What stands on an axis: the tokens as they are read, without the space before a word."""
    chosen = ids.flatten().tolist() if isinstance(ids, Tensor) else list(ids)
    return tuple(map(str, chosen)) if tokenizer is None else bare(token_names(tokenizer, chosen))


def bare(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() or name for name in names)


@checked
@singledispatch
def to_picture(
    result: Any, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = "", **more: Any
) -> Picture:
    """The picture of a result; `ids` are the tokens that its positions stand for."""
    raise InputError(f"there is no picture of a {type(result).__name__}")


@to_picture.register
def _(
    found: Lens,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    row: int = 0,
    follow: int | None = None,
    labels: Sequence[str] | None = None,
    title: str = "",
) -> LensGrid:
    """Colours are the probability of what each layer says; `follow` that of the number-th token that was asked for."""
    said = found.top_tokens[:, row, :, 0]
    if follow is not None:
        values, what = found.token_probability[:, row, :, follow], "probability of what is followed"
    else:
        values, what = found.top_probabilities[:, row, :, 0], "probability"
    known = {id: _named(tokenizer, id, labels) for id in said.flatten().tolist()}
    positions = token_words(tokenizer, ids)
    if found.positions is not None and len(positions) > len(found.positions):
        positions = tuple(positions[position] for position in found.positions)
    if len(positions) != said.shape[1]:
        positions = ("answer",) if said.shape[1] == 1 else ()
    grid = [[known[id] for id in line] for line in said.tolist()]
    high = None if follow is None else max(float(values.max()), 1e-9)
    return LensGrid(grid, values, positions, layer_names(found.layers), title or "Logit lens", what, 0.0, high)


def _named(tokenizer: Tokenizer | None, id: int, labels: Sequence[str] | None) -> str:
    if labels is not None:
        return str(labels[id])
    if tokenizer is None or id >= tokenizer.vocab_size:
        return str(id)
    return bare(token_names(tokenizer, [id]))[0]


def layer_names(taps: Sequence[str]) -> tuple[str, ...]:
    """What enters the first block, and the stream after each block, counted from 0 as everywhere."""
    return tuple("embedding" if tap.endswith("residual_before") else f"after block {tap.split('.')[1]}" for tap in taps)


@to_picture.register
def _(
    found: Sweep,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    title: str = "",
    names: Sequence[str] = (),
) -> HeatMap:
    """Layer × position, or layer × head; `names` are those of the positions, where there are no ids."""
    patched = found.how == "patch"
    what = "share of the clean answer that is back" if patched else "by how much the metric falls without it"
    effects = found.effects
    rows = found.layer_names
    columns: tuple[str, ...] = ("all",)
    axes = ("layer", "position")
    if found.positions is not None:
        words = bare(names) or token_words(tokenizer, ids)
        columns = tuple(words[at] if at < len(words) else str(at) for at in found.positions)
    if found.heads is not None and found.positions is not None:
        rows = tuple(f"{layer}.{head}" for layer in found.layers for head in found.heads)
        effects, axes = effects.transpose(1, 2).flatten(0, 1), ("layer.head", "position")
    elif found.heads is not None:
        columns, axes = tuple(map(str, found.heads)), ("layer", "head")
    title = title or f"{'Patching' if patched else 'Without'} {found.tap}"
    values = tidy(np.array(effects.reshape(len(rows), len(columns)).tolist()))
    return HeatMap(values, rows, columns, title, *axes, what, "diverging")


@to_picture.register
def _(
    found: Attribution,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    image: np.ndarray | None = None,
    title: str = "",
) -> Picture:
    """Words; of a picture its patches, over the `image`. Of a translation, the words before are ‹…›."""
    title = title or f"What the answer comes from: {METHODS[found.method]}" + (f", {found.off}" if found.off else "")
    what = "share" if found.method in LOOKED else "log p"
    if found.shape is not None:
        maps = {name: scores.reshape(found.shape) for name, scores in zip(found.outputs, found.scores, strict=True)}
        if image is not None:
            return PatchEvidence(image, maps, title, f"evidence ({what})")
        return HeatMap(maps[found.outputs[0]], title=title, row_name="patch row", column_name="patch column", what=what)
    if tokenizer is not None and found.input_ids is not None:
        found = found.words(tokenizer)
    inputs = bare(found.inputs)
    if len(found.parts) == 2:
        n, what = found.parts[0], f"{what}; {SO_FAR}"
        inputs = (*inputs[:n], *(f"‹{word}›" for word in inputs[n:]))
    return ColouredText(found.scores, inputs, bare(found.outputs), title, what)


@to_picture.register
def _(
    found: Writers, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = ""
) -> HeatMap:
    """Layer × head of one output; of several, the strongest writers × outputs."""
    title = title or "Who wrote the answer: direct logit attribution"
    what = "logit of the answer − logit of its rival" if any(found.versus) else "logit"
    if len(found.outputs) == 1:
        (right,), (wrong,) = bare(found.outputs), bare(found.versus)
        what = f"logit of «{right}»" + (f" − logit of «{wrong}»" if wrong else "")
        return _by_layer(found.names, found.scores[:, 0].tolist(), title, what)
    some = found.best(24)
    values, names = [scores for _, scores in some], [short_name(name) for name, _ in some]
    what = f"{what}; {WRITERS}"
    return HeatMap(tidy(np.array(values)), names, bare(found.outputs), title, "writer", "output", what, "diverging")


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
    return HeatMap(tidy(np.array(values)), named, columns, title, "layer", "head", note, colours)


def _by_kind(column: str) -> tuple[bool, bool, int]:
    """Heads, cross heads, feed-forwards."""
    number = re.search(r"\d+", column)
    return number is None, not column.isdigit(), int(number[0]) if number else 0


@to_picture.register
def _(
    found: LogitWrites,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    row: int = 0,
    token: int = 0,
    title: str = "",
) -> HeatMap:
    """Writer × position: what each adds to the score of the number-th token."""
    scores = found.scores[:, row].reshape(len(found.names), -1, found.scores.shape[-1])[..., token]
    title = title or "What each part adds to the logit"
    return HeatMap(
        scores, found.names, _columns(tokenizer, ids, found.positions, scores), title, "writer", "position", "logit"
    )


@to_picture.register
def _(
    found: Writes,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    row: int = 0,
    title: str = "",
) -> HeatMap:
    """Writer × position: how long what it wrote is."""
    sizes = found.vectors[:, row].norm(dim=-1)
    names = _columns(tokenizer, ids, found.positions, sizes)
    return HeatMap(
        sizes, found.names, names, title or f"Who wrote into {found.at}", "writer", "position", "length of the vector"
    )


def _columns(
    tokenizer: Tokenizer | None, ids: Tensor | Sequence[int], positions: Sequence[int] | None, values: Tensor
) -> Sequence[str]:
    words = token_words(tokenizer, ids)
    if positions is not None and len(words) > max(positions, default=-1):
        words = tuple(words[position] for position in positions)
    return words if len(words) == values.shape[1] else ()


@to_picture.register
def _(
    found: Alignment, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = ""
) -> Arcs:
    source = [found.source[a:b] for a, b in found.source_words]
    target = [found.target[a:b] for a, b in found.target_words]
    title = title or "Alignment: where each word of the translation looked"
    return Arcs(found.matrix, target, source, title, "translation", "source", 0.1)


@to_picture.register
def _(
    found: HeadScores, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = ""
) -> HeatMap:
    title = title or f"Heads: {found.what}"
    return _by_layer(list(found.scores), list(found.scores.values()), title, "score", "auto")


@to_picture.register
def _(
    found: Circuit, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = ""
) -> CircuitGraph:
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
    """`decoder.3.attention.7` is 3.7, `decoder.3.cross.7` 3.cross.7, `decoder.3.feed_forward` 3.ff."""
    found = re.fullmatch(r"((?:en|de)coder)\.(\d+)\.(attention|cross|feed_forward)(\..+)?", node)
    if found is None:
        return re.sub(r"^decoder\.|^target_", "", node)
    middle = {"attention": "", "cross": ".cross", "feed_forward": ".ff"}[found[3]]
    return f"{'encoder.' if found[1] == 'encoder' else ''}{found[2]}{middle}{found[4] or ''}"
