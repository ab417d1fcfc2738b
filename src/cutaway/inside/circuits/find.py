"""Finding a circuit: which nodes a task needs, and how much of it a given number of them keeps.

    found = find_circuit(task, "names", sizes=range(5, 65, 5))
    found.curve         # size → share of the metric that is kept
    found.circuit(30)

`find_circuit` ranks: attribution patching estimates the effect of each node in the whole model; the best are then
ablated one by one, and ordered by the exact loss. `grow_circuit` starts with all nodes ablated, and adds a few at a
time, those with the largest estimated effect beside the ones that are there. A node can have a small effect in the
whole model, because another does its work when it is missing, and a large one when that node is missing, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.circuit_task import CircuitTask
from cutaway.inside.progress import Progress, counted_progress, no_progress, stages

ESTIMATE = 3  # the cost of a forward and backward pass, in forward passes


@dataclass(frozen=True, eq=False)
class FoundCircuits:
    """Nodes, the most needed first; `curve` maps a size to the faithfulness of that many of them."""

    asked: CircuitTask
    name: str
    how: str
    order: tuple[str, ...]
    worth: dict[str, float]  # the effect of each, as it was measured or estimated, in units of the metric
    curve: dict[int, float]

    def circuit(self, size: int, **more: Any) -> Circuit:
        if not 0 <= size <= len(self.order):
            raise InputError(f"size={size}: {len(self.order)} nodes were ordered")
        nodes = self.order[:size]
        more = {"found_with": self.how, "effects": {node: self.worth[node] for node in nodes}, **more}
        return Circuit.of(self.asked.model, self.name, nodes, **more)

    def smallest(self, share: float = 0.8) -> int | None:
        """The smallest size, of those tried, that keeps this share; None if there is none."""
        return next((size for size, kept in sorted(self.curve.items()) if kept >= share), None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "how": self.how,
            "order": list(self.order),
            "worth": self.worth,
            "curve": {str(size): kept for size, kept in self.curve.items()},
        }


@checked
def faithfulness_curve(
    asked: CircuitTask, order: Sequence[str], sizes: Iterable[int], *, progress: Progress = no_progress
) -> dict[int, float]:
    """The faithfulness of the first nodes of an order, for each number of them.

    >>> faithfulness_curve(task, task.among, [1, 2])
    """
    sizes = _possible(sizes, len(order))
    return {size: asked.share(asked.measure(order[:size])) for size in counted_progress(sizes, progress)}


def _possible(sizes: Iterable[int], n: int) -> list[int]:
    sizes = list(sizes)
    for size in sizes:
        if not 0 <= size <= n:
            raise InputError(f"size {size} of {n} nodes: 0…{n}")
    return sizes


@checked
def find_circuit(
    asked: CircuitTask, name: str, *, sizes: Iterable[int], shortlist: int = 40, progress: Progress = no_progress
) -> FoundCircuits:
    """Ranks the nodes: all by estimate, and the `shortlist` with the largest estimates exactly, which come first.

    >>> find_circuit(task, "a name", sizes=[2], shortlist=2).circuit(2)

    Nodes that work against the task come last.
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


@checked
def grow_circuit(
    asked: CircuitTask, name: str, *, to: int, by: int = 5, start: Iterable[str] = (), progress: Progress = no_progress
) -> FoundCircuits:
    """Adds nodes to a model with all nodes ablated (but `start`), `by` at a time, by their estimated effect.

    >>> grow_circuit(task, "a name", to=4, by=2).curve

    Each step takes one forward and backward pass, and gives a point of the curve.
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
