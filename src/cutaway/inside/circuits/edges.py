"""Edges of a circuit, measured by path patching (Wang et al. 2022, section 3.1; see `paths`).

    circuit = find_edges(task, circuit)     # the same circuit, with its edges
    circuit.edges                           # ("decoder.3.attention.0", "decoder.5.attention.5", 0.41), …

The weight of an edge is by how much the metric falls when the sender is ablated for the receiver alone: all heads are
held, so that the change travels through the stream and the feed-forwards, but through no other head; the receiver's
output is then put into a run that is otherwise unchanged. An edge to the logits is the direct path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cutaway.arguments import checked
from cutaway.inside.circuits.circuit import Circuit, Edge
from cutaway.inside.circuits.circuit_task import HEADS, CircuitTask, circuit_nodes, node_place
from cutaway.inside.patching.place import Place
from cutaway.inside.progress import Progress, no_progress
from cutaway.model.tap import watch

Source = Mapping[str, Tensor]


@checked
@torch.no_grad()
def find_edges(
    asked: CircuitTask, circuit: Circuit, *, least: float = 0.02, progress: Progress = no_progress
) -> Circuit:
    """The circuit with its edges, except those below `least`, as a share of the effect of all nodes of the task.

    >>> find_edges(task, Circuit.of(model, "a name", ["decoder.0.attention.1", "decoder.1.attention.0"])).edges

    It takes a pass for every two nodes of which one comes after the other.
    """
    circuit.check(asked.model)
    nodes = set(asked.known(circuit.nodes))
    order = [node for node in asked.among if node in nodes]
    heads = {node_place(node).tap for node in circuit_nodes(asked.model, [HEADS])}
    after = {node: [other for other in order[at + 1 :] if _meets(node, other)] for at, node in enumerate(order)}
    whole, worth = asked.whole.mean(), (asked.whole.mean() - asked.none.mean()).abs()
    total, found = sum(map(len, after.values())) + len(order), list[Edge]()
    _, own = _seen(asked, [], heads)
    held = [(Place(tap), own) for tap in heads]
    for sender, receivers in after.items():
        taps = {node_place(node).tap for node in receivers}
        direct, heard = _seen(asked, [*held, (node_place(sender), asked.instead)], taps)
        found.append((sender, "logits", (whole - direct.mean()).item()))
        progress(len(found), total)
        for receiver in receivers:
            without = asked.patched([(node_place(receiver), heard)])
            found.append((sender, receiver, (whole - without.mean()).item()))
            progress(len(found), total)
    return replace(circuit, edges=tuple(edge for edge in found if abs(edge[2]) >= least * worth))


def _meets(sender: str, receiver: str) -> bool:
    """Heads of the same attention do not receive from each other."""
    return node_place(sender).tap != node_place(receiver).tap


def _seen(asked: CircuitTask, changes: Sequence[tuple[Place, Source]], taps: set[str]) -> tuple[Tensor, Source]:
    """The metric with these changes, and the values of the taps before they were held."""
    if not taps:
        return asked.patched(changes), {}
    with watch(asked.model, *taps, keep="all") as seen:  # opened first: it sees values before they are edited
        metric = asked.patched(changes)
    return metric, {tap: torch.cat(values) for tap, values in seen.items()}
