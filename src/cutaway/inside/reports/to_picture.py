"""The picture of a result, with the words of the text along its axes.

    to_picture(logit_lens(model, ids), tokenizer, ids).save("lens.html")
    to_picture(patch_sweep(model, clean, corrupted, metric), tokenizer, clean)
    to_picture(explain_next(model, tokenizer, text), tokenizer)

A token is shown as the text that it adds: «für», not the bytes of a byte-level vocabulary.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.alignment import Alignment
from cutaway.errors import InputError
from cutaway.inside.attribution.result import ATTENTION_METHODS, METHODS, Attribution, token_names
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.patching.sweep import Sweep
from cutaway.inside.reports.axes import layer_names, position_names, strip_spaces, token_words
from cutaway.inside.reports.circuit_pictures import draw_circuit, draw_head_scores, draw_writers
from cutaway.inside.reports.writers import Writers
from cutaway.inside.residual.logit_lens import Lens
from cutaway.inside.residual.stream import LogitDecomposition, ResidualDecomposition
from cutaway.pictures import Arcs, ColouredText, HeatMap, LensGrid, PatchEvidence, Picture
from cutaway.pictures.picture_data import round_values
from cutaway.tokens import Tokenizer

SO_FAR = "‹…› is of the translation so far"


@checked
@singledispatch
def to_picture(
    result: Any, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = "", **more: Any
) -> Picture:
    """The picture of a result; `ids` are the tokens at its positions.

    >>> to_picture(logit_lens(model, ids), tokenizer, ids).save("lens.svg")
    """
    raise InputError(f"there is no picture of a {type(result).__name__}")


to_picture.register(Circuit, draw_circuit)
to_picture.register(HeadScores, draw_head_scores)
to_picture.register(Writers, draw_writers)


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
    return strip_spaces(token_names(tokenizer, [id]))[0]


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
        words = strip_spaces(names) or token_words(tokenizer, ids)
        columns = tuple(words[at] if at < len(words) else str(at) for at in found.positions)
    if found.heads is not None and found.positions is not None:
        rows = tuple(f"{layer}.{head}" for layer in found.layers for head in found.heads)
        effects, axes = effects.transpose(1, 2).flatten(0, 1), ("layer.head", "position")
    elif found.heads is not None:
        columns, axes = tuple(map(str, found.heads)), ("layer", "head")
    title = title or f"{'Patching' if patched else 'Without'} {found.tap}"
    values = round_values(np.array(effects.reshape(len(rows), len(columns)).tolist()))
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
    title = title or f"What the answer comes from: {METHODS[found.method]}" + (
        f", {found.error_note}" if found.error_note else ""
    )
    what = "share" if found.method in ATTENTION_METHODS else "log p"
    if found.shape is not None:
        maps = {name: scores.reshape(found.shape) for name, scores in zip(found.outputs, found.scores, strict=True)}
        if image is not None:
            return PatchEvidence(image, maps, title, f"evidence ({what})")
        return HeatMap(maps[found.outputs[0]], title=title, row_name="patch row", column_name="patch column", what=what)
    if tokenizer is not None and found.input_ids is not None:
        found = found.words(tokenizer)
    inputs = strip_spaces(found.inputs)
    if len(found.parts) == 2:
        n, what = found.parts[0], f"{what}; {SO_FAR}"
        inputs = (*inputs[:n], *(f"‹{word}›" for word in inputs[n:]))
    return ColouredText(found.scores, inputs, strip_spaces(found.outputs), title, what)


@to_picture.register
def _(
    found: LogitDecomposition,
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
        scores,
        found.names,
        position_names(tokenizer, ids, found.positions, scores),
        title,
        "writer",
        "position",
        "logit",
    )


@to_picture.register
def _(
    found: ResidualDecomposition,
    tokenizer: Tokenizer | None = None,
    ids: Tensor | Sequence[int] = (),
    *,
    row: int = 0,
    title: str = "",
) -> HeatMap:
    """Writer × position: how long what it wrote is."""
    sizes = found.vectors[:, row].norm(dim=-1)
    names = position_names(tokenizer, ids, found.positions, sizes)
    return HeatMap(
        sizes, found.names, names, title or f"Who wrote into {found.at}", "writer", "position", "length of the vector"
    )


@to_picture.register
def _(
    found: Alignment, tokenizer: Tokenizer | None = None, ids: Tensor | Sequence[int] = (), *, title: str = ""
) -> Arcs:
    source = [found.source[a:b] for a, b in found.source_words]
    target = [found.target[a:b] for a, b in found.target_words]
    title = title or "Alignment: where each word of the translation looked"
    return Arcs(found.matrix, target, source, title, "translation", "source", 0.1)
