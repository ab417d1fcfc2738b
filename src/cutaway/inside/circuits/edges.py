"""Edges of a circuit: who speaks to whom, by path patching (Wang et al. 2022, section 3.1; see `paths`).

    drawn = connect(asked, circuit)     # the same circuit, with its edges
    drawn.edges                         # ("decoder.3.attention.0", "decoder.5.attention.5", 0.41), …

The weight of an edge is by how much the metric falls when the receiver alone hears the sender as if it were taken away:
all heads are held at what they were, so that the word travels through the stream, and feed-forwards, but through no
other head; what the receiver then says is put into a run that is otherwise as usual. An edge to the logits is the
direct path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cutaway.inside.circuits.circuit import Circuit, Edge
from cutaway.inside.circuits.circuit_task import HEADS, CircuitTask, circuit_nodes, node_place
from cutaway.inside.patching.place import Place
from cutaway.inside.progress import Progress, no_progress
from cutaway.model.tap import watch

Source = Mapping[str, Tensor]


@torch.no_grad()
def find_edges(
    asked: CircuitTask, circuit: Circuit, *, least: float = 0.02, progress: Progress = no_progress
) -> Circuit:
    """The circuit with its edges, but for those below `least`, a share of what all nodes of the trial are worth.

    It takes a pass for every two nodes, one of which comes after the other.
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
    """Heads of one attention never hear each other."""
    return node_place(sender).tap != node_place(receiver).tap


def _seen(asked: CircuitTask, changes: Sequence[tuple[Place, Source]], taps: set[str]) -> tuple[Tensor, Source]:
    """The metric with these changes, and what the taps would have said before they were held."""
    if not taps:
        return asked.patched(changes), {}
    with watch(asked.model, *taps, keep="all") as seen:  # opened first: it sees values before they are edited
        metric = asked.patched(changes)
    return metric, {tap: torch.cat(values) for tap, values in seen.items()}
