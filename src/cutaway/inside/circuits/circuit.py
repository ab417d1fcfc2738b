"""A circuit: the few heads and feed-forwards that do a task, as data that can be saved, loaded and tested.

A claim about a circuit is a claim about what happens when other nodes are ablated (Wang et al. 2022, section 4):

    faithful    with everything outside it ablated, the model still does the task
    complete    without any part of it, circuit and model lose the same: nothing that helps was left out
    minimal     every node of it is needed

`circuit_task` replaces ablated nodes by their mean over other prompts, by their value in another prompt, or by zero.

    task = circuit_task(model, ids, metric=LogitDifference(right, wrong), reference=other_ids)
    circuit = Circuit.of(model, "names", ["decoder.3.attention.7", "decoder.5.attention.0"])
    faithfulness(task, circuit)       # 1: as the whole model, 0: as with all nodes ablated
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.files import read_json, write_json
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_nodes
from cutaway.inside.progress import Progress, counted_progress, no_progress
from cutaway.inside.residual.tuned_lens import model_fingerprint
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled

ENDS = ("input", "logits")  # what edges may start and end at besides nodes
NODE = re.compile(r"(encoder|decoder)\.[0-9]+\.((attention|cross)\.[0-9]+|feed_forward)")
Edge = tuple[str, str, float]


@dataclass(frozen=True)
class Circuit:
    """Nodes by name: heads (`decoder.3.attention.7`, `decoder.3.cross.7`), feed-forwards (`encoder.0.feed_forward`).

    >>> Circuit.of(model, "a name", ["decoder.0.attention.1"]).save("circuit.json")
    """

    name: str
    model: Mapping[str, Any]  # family and sizes of the model that it was found in, and a hash of its weights
    nodes: tuple[str, ...]
    task: str = ""
    found_with: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        for node in self.nodes:
            if not NODE.fullmatch(node):
                raise InputError(
                    f"{node!r} is not the name of a node: heads are decoder.3.attention.7 and decoder.3.cross.7, "
                    "feed-forwards encoder.0.feed_forward"
                )
        twice = sorted({node for node in self.nodes if self.nodes.count(node) > 1})
        if twice:
            raise InputError(f"the circuit {self.name!r} has the node {twice[0]!r} twice")
        for what in ("roles", "effects"):
            for node in getattr(self, what):
                if node not in self.nodes:
                    raise InputError(f"{what} of {node!r}, which is not a node of the circuit {self.name!r}")
        for start, end, _ in self.edges:
            for node in (start, end):
                if node not in (*self.nodes, *ENDS):
                    raise InputError(
                        f"an edge of {node!r}, which is neither a node of the circuit {self.name!r} nor one of {ENDS}"
                    )

    @classmethod
    def of(cls, model: Model, name: str, nodes: Iterable[str], **more: Any) -> "Circuit":
        """A circuit of this model, which must have its nodes."""
        found = cls(name, description(model), tuple(nodes), **more)
        found.check(model)
        return found

    def check(self, model: Model) -> None:
        """Refuses a model that lacks a node, or has other sizes. Other weights are allowed: see `same_weights`."""
        own = description(model, weights=False)
        for key, value in own.items():
            if self.model.get(key) != value:
                raise InputError(f"the circuit {self.name!r} is of {key}={self.model.get(key)}, this model has {value}")
        known = circuit_nodes(model)
        for node in self.nodes:
            if node not in known:
                raise InputError(f"this model has no {node!r}: {_nearest(node, known)}")

    def same_weights(self, model: nn.Module) -> bool:
        """Whether this is the very model that the circuit was found in."""
        return self.model.get("weights") == model_fingerprint(model).hex()

    def without(self, *nodes: str) -> tuple[str, ...]:
        for node in nodes:
            if node not in self.nodes:
                raise InputError(f"{node!r} is not a node of the circuit {self.name!r}")
        return tuple(node for node in self.nodes if node not in nodes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "model": dict(self.model),
            "nodes": list(self.nodes),
            "task": self.task,
            "found_with": self.found_with,
            "roles": dict(self.roles),
            "effects": dict(self.effects),
            "edges": [list(edge) for edge in self.edges],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Circuit":
        """Reads what `to_dict` wrote; refuses unknown keys and values of another type."""
        known = {"name": str, "model": dict, "nodes": list, "task": str, "found_with": str}
        known |= {"roles": dict, "effects": dict, "edges": list}
        for key, value in values.items():
            if key not in known:
                raise InputError(f"unknown key {key!r} in a circuit; known: {', '.join(known)}")
            if type(value) is not known[key]:
                raise InputError(f"{key!r} of a circuit is a {type(value).__name__}, not a {known[key].__name__}")
        missing = [key for key in ("name", "model", "nodes") if key not in values]
        if missing:
            raise InputError(f"this circuit is without {missing[0]!r}")
        _all("nodes", values["nodes"], str)
        _all("roles", values.get("roles", {}).values(), str)
        _all("effects", values.get("effects", {}).values(), float)
        edges = values.get("edges", [])
        for edge in edges:
            if type(edge) is not list or [type(part) for part in edge] != [str, str, float]:
                raise InputError(f"an edge of a circuit is [from, to, weight], not {edge!r}")
        return cls(**{**values, "nodes": tuple(values["nodes"]), "edges": tuple((a, b, w) for a, b, w in edges)})

    def save(self, path: Path | str) -> None:
        write_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: Path | str, model: Model | None = None) -> "Circuit":
        """Loads a circuit; with a `model`, checks that it has the nodes."""
        try:
            found = cls.from_dict(read_json(Path(path)))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if model is not None:
            found.check(model)
        return found


def description(model: Model, *, weights: bool = True) -> dict[str, Any]:
    """Family and sizes, which determine the nodes, and a hash of the weights."""
    config = uncompiled(model).config.to_dict()
    sizes = {name: value for name, value in config.items() if name.startswith("n_") and name != "n_classes"}
    found = {"family": config["family"], "d_model": config["d_model"], **sizes}
    return found | ({"weights": model_fingerprint(model).hex()} if weights else {})


@checked
def faithfulness(asked: CircuitTask, circuit: Circuit | Iterable[str]) -> float:
    """The share of the metric that the circuit alone keeps: 1 as the whole model, 0 as with all nodes ablated.

    >>> faithfulness(task, ["decoder.0.attention.1"])
    """
    return asked.share(asked.measure(_nodes(asked, circuit)))


@dataclass(frozen=True)
class Completeness:
    """For each subset, what the circuit and what the model keep without it; for a complete circuit, the same."""

    subsets: tuple[tuple[str, ...], ...]
    circuit: tuple[float, ...]
    model: tuple[float, ...]

    @property
    def gap(self) -> float:
        """The largest difference."""
        return max(abs(a - b) for a, b in zip(self.circuit, self.model, strict=True))

    def to_dict(self) -> dict[str, Any]:
        subsets = [list(subset) for subset in self.subsets]
        return {"subsets": subsets, "circuit": list(self.circuit), "model": list(self.model), "gap": self.gap}


@checked
def completeness(
    asked: CircuitTask,
    circuit: Circuit,
    subsets: Sequence[Sequence[str]] | None = None,
    *,
    progress: Progress = no_progress,
) -> Completeness:
    """Ablates subsets in the circuit and in the model; by default the whole circuit, and the nodes of each role.

    >>> completeness(task, Circuit.of(model, "a name", ["decoder.0.attention.1"])).gap
    """
    nodes = _nodes(asked, circuit)
    if subsets is None:
        by_role = [[node for node, its in circuit.roles.items() if its == role] for role in set(circuit.roles.values())]
        subsets = [list(nodes), *sorted(by_role)]
    if not subsets:
        raise InputError("subsets is empty: leave it out, or give at least one")
    alone, whole = [], []
    for subset in counted_progress(subsets, progress):
        alone.append(asked.share(asked.measure(circuit.without(*subset))))
        whole.append(asked.share(asked.measure(node for node in asked.among if node not in subset)))
    return Completeness(tuple(map(tuple, subsets)), tuple(alone), tuple(whole))


@checked
def minimality(asked: CircuitTask, circuit: Circuit, *, progress: Progress = no_progress) -> dict[str, float]:
    """By how much the share that is kept falls without each node of the circuit.

    >>> minimality(task, Circuit.of(model, "a name", ["decoder.0.attention.1"]))
    """
    kept = faithfulness(asked, circuit)
    nodes = counted_progress(circuit.nodes, progress)
    return {node: kept - asked.share(asked.measure(circuit.without(node))) for node in nodes}


def _nodes(asked: CircuitTask, circuit: Circuit | Iterable[str]) -> tuple[str, ...]:
    if isinstance(circuit, Circuit):
        circuit.check(asked.model)
        return circuit.nodes
    return tuple(circuit)


def _all(key: str, values: Iterable[Any], kind: type) -> None:
    for value in values:
        if type(value) is not kind:
            raise InputError(f"{key!r} of a circuit has {value!r}, which is not a {kind.__name__}")


def _nearest(node: str, known: Sequence[str]) -> str:
    part = re.sub(r"\.\d+$", "", node)
    of_part = [name for name in known if name.startswith(f"{part}.")]
    return f"it has {part}.0 … {of_part[-1]}" if of_part else f"it has {known[0]} … {known[-1]}"
