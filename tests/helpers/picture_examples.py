"""One picture of each kind with n tokens, for tests and for the benchmark."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from cutaway.pictures import (
    Arcs,
    CircuitGraph,
    ColouredText,
    Dots,
    HeatMap,
    LensGrid,
    Lines,
    PatchEvidence,
    Picture,
    head_maps,
)

KINDS = ("heat map", "heads", "arcs", "coloured text", "lens", "circuit", "image", "lines", "dots")
N_LAYERS = 12


def example(kind: str, n: int, tokens: Sequence[str] = (), **options: bool | str) -> Picture:
    return prepared(kind, n, tokens, **options)()


def prepared(
    kind: str, n: int, tokens: Sequence[str] = (), *, holes: bool = False, only_holes: bool = False, title: str = ""
) -> Callable[[], Picture]:
    """The data are there, the picture is still to be made; `tokens` are repeated until there are n."""
    draw = np.random.default_rng(n)
    chosen = tokens or ["the", "cat", "sat"]
    words = [chosen[i % len(chosen)] for i in range(n)]

    def with_holes(values: np.ndarray) -> np.ndarray:
        if only_holes:
            return np.full_like(values, np.nan)
        if holes:
            values.flat[[0, values.size // 2, values.size - 2]] = [np.nan, np.inf, -np.inf]
        return values

    if kind == "heat map":
        return partial(HeatMap, with_holes(draw.standard_normal((n, n))), words, words, title=title)
    if kind == "heads":
        few = 2 if n < 512 else N_LAYERS
        patterns = draw.random((few, few, n, n), np.float32) ** 8
        patterns /= patterns.sum(-1, keepdims=True)
        return partial(head_maps, with_holes(patterns), words, words, title=title)
    if kind == "arcs":
        return partial(Arcs, with_holes(draw.random((n, n)) ** 4), words, words, title=title)
    if kind == "coloured text":
        return partial(ColouredText, with_holes(draw.standard_normal((n, n))), words, words, title=title)
    if kind == "lens":
        said = [[words[(i + layer) % n] for i in range(n)] for layer in range(N_LAYERS)]
        return partial(LensGrid, said, with_holes(draw.random((N_LAYERS, n))), words, title=title)
    if kind == "circuit":
        edges = np.stack([np.arange(n - 1), np.arange(1, n), draw.standard_normal(n - 1)], axis=1)
        edges[:, 2] = np.nan if only_holes else edges[:, 2]
        edges[1, 2] = np.nan if holes else edges[1, 2]
        return partial(CircuitGraph, words, range(n), edges, title=title)
    if kind == "image":
        maps = {word: with_holes(draw.standard_normal((8, 8))) for word in words[:6]}
        return partial(PatchEvidence, draw.random((64, 64)), maps, title=title)
    lines = {word: with_holes(draw.standard_normal(n)) for word in words[:3]}
    bands = {name: np.stack([line - 0.1, line + 0.2]) for name, line in lines.items()}
    if kind == "dots":
        return partial(Dots, words, lines, bands, title=title)
    return partial(Lines, np.arange(1, n + 1), lines, bands, title=title)
