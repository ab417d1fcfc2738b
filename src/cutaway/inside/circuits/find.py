"""Finding a circuit: which nodes a task needs, and how much of it so many of them keep.

    found = find(asked, "names", sizes=range(5, 65, 5))
    found.curve         # size → share of the metric that is kept
    found.circuit(30)

Ranked: one pass and back estimates what each node is worth in the whole model (attribution patching); the best of them
are then taken away one by one, exactly, and ordered by what is lost. Grown: nodes are added to a model from which all
are taken away, a few at a time, those first that are worth most beside the ones that are there. A node can be worth
little in the whole model, because another does its work when it is gone, and much where that one is gone too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.circuit_task import CircuitTask
from cutaway.inside.progress import Progress, counted_progress, no_progress, stages

ESTIMATE = 3  # passes that a pass and back is worth


@dataclass(frozen=True, eq=False)
class FoundCircuits:
    """Nodes, the most needed first; `curve` is the faithfulness of the first so many."""

    asked: CircuitTask
    name: str
    how: str
    order: tuple[str, ...]
    worth: dict[str, float]  # what each is worth by the way it was found, in units of the metric
    curve: dict[int, float]

    def circuit(self, size: int, **more: Any) -> Circuit:
        if not 0 <= size <= len(self.order):
            raise InputError(f"size={size}: {len(self.order)} nodes were ordered")
        nodes = self.order[:size]
        more = {"found_with": self.how, "effects": {node: self.worth[node] for node in nodes}, **more}
        return Circuit.of(self.asked.model, self.name, nodes, **more)

    def smallest(self, share: float = 0.8) -> int | None:
        """The smallest size that keeps this share, of those tried; None where none does."""
        return next((size for size, kept in sorted(self.curve.items()) if kept >= share), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "how": self.how,
            "order": list(self.order),
            "worth": self.worth,
            "curve": {str(size): kept for size, kept in self.curve.items()},
        }


def faithfulness_curve(
    asked: CircuitTask, order: Sequence[str], sizes: Iterable[int], *, progress: Progress = no_progress
) -> dict[int, float]:
    """Faithfulness against size: of the first so many nodes of an order."""
    sizes = _possible(sizes, len(order))
    return {size: asked.share(asked.measure(order[:size])) for size in counted_progress(sizes, progress)}


def _possible(sizes: Iterable[int], n: int) -> list[int]:
    sizes = list(sizes)
    for size in sizes:
        if not 0 <= size <= n:
            raise InputError(f"size {size} of {n} nodes: 0…{n}")
    return sizes


def find_circuit(
    asked: CircuitTask, name: str, *, sizes: Iterable[int], shortlist: int = 40, progress: Progress = no_progress
) -> FoundCircuits:
    """Ranks the nodes: all by estimate, the `shortlist` best of them (by size) exactly, and these first.

    The order is by what is lost, so that nodes that work against the task come last.
    """
    sizes = _possible(sizes, len(asked.among))  # before the work
    first, then, last = stages(progress, ESTIMATE, min(shortlist, len(asked.among)), len(sizes))
    guessed = asked.estimates(progress=first)
    listed = sorted(guessed, key=lambda node: -abs(guessed[node]))
    exact = asked.effects(listed[:shortlist], progress=then)
    worth = guessed | exact
    rest = sorted(listed[shortlist:], key=lambda node: -guessed[node])
    best = sorted(exact, key=lambda node: -exact[node])
    helpful = [node for node in best if exact[node] > 0]
    order = (*helpful, *rest, *best[len(helpful) :])
    how = f"ranked: attribution patching, then the exact effect of {len(exact)}"
    return FoundCircuits(asked, name, how, order, worth, faithfulness_curve(asked, order, sizes, progress=last))


def grow_circuit(
    asked: CircuitTask, name: str, *, to: int, by: int = 5, start: Iterable[str] = (), progress: Progress = no_progress
) -> FoundCircuits:
    """Adds nodes to an empty model (or `start`), `by` at a time, by their estimated worth beside those already there.

    The curve has a point for each step. A pass and back costs about three passes, and there is one for each step.
    """
    if by < 1 or to > len(asked.among):
        raise InputError(f"by={by}, to={to}: grow by at least 1, to at most {len(asked.among)} nodes")
    kept = list(start)
    worth = dict.fromkeys(kept, 0.0)
    points: dict[int, float] = {}
    for _ in counted_progress(range(len(kept), to, by), progress):
        found = asked.estimates(kept)
        best = sorted((node for node in asked.among if node not in worth), key=lambda node: -found[node])
        for node in best[: min(by, to - len(kept))]:
            kept.append(node)
            worth[node] = found[node]
        points |= faithfulness_curve(asked, kept, [len(kept)])
    return FoundCircuits(asked, name, f"grown: {by} at a time", tuple(kept), worth, points)
