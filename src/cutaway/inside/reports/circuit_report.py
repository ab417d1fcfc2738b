"""Reports about circuits: one that was found, and a test of one that was saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit, Completeness
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.reports.report import Report
from cutaway.inside.reports.to_picture import to_picture
from cutaway.pictures import Lines, Picture
from cutaway.pictures.console import Console
from cutaway.pictures.terminal_tables import chance, grid
from cutaway.pictures.terminal_text import json_text, minus

HEADS, EDGES, IDLE = 3, 8, 4  # heads of each kind, edges, and heads that add nothing, in a terminal


@dataclass(frozen=True, eq=False)
class CircuitReport(Report):
    """The circuit that a preset found."""

    preset: str
    circuit: Circuit
    facts: Sequence[tuple[str, str]]  # for people: what, and how much
    scores: Mapping[str, HeadScores]
    data: Mapping[str, Any]  # what else was found
    curves: Mapping[str, dict[int, float]] = field(default_factory=dict)  # faithfulness against size
    model: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.preset}"

    @property
    def summary(self) -> str:
        return " · ".join(f"{what}: {much}" for what, much in self.facts)

    def pictures(self) -> dict[str, Picture]:
        pictures: dict[str, Picture] = {"circuit": to_picture(self.circuit)}
        if self.curves:
            sizes = sorted(next(iter(self.curves.values())))
            lines = {name: [curve[size] for size in sizes] for name, curve in self.curves.items()}
            title = "How much of the task so many heads keep"
            pictures["curves"] = Lines(sizes, lines, title=title, x_name="heads", y_name="share of the metric")
        for name, one in self.scores.items():
            pictures[name] = to_picture(one, title=f"Heads: {name.replace('_', ' ')}")
        return pictures

    def to_dict(self) -> dict[str, Any]:
        curves = {name: {str(size): kept for size, kept in curve.items()} for name, curve in self.curves.items()}
        return {
            "preset": self.preset,
            "circuit": self.circuit.to_dict(),
            "scores": {name: one.to_dict() for name, one in self.scores.items()},
            "curves": curves,
            **self.data,
        }

    def saved_json(self) -> str:
        """The circuit alone, to be loaded again."""
        return json_text(self.circuit.to_dict()) + "\n"

    def print_to(self, console: Console) -> None:
        facts = grid()
        for what, much in self.facts:
            facts.add_row(Text(what, "dim"), Text(much))
        console.print(facts)
        for name, scores in self.scores.items():
            console.print()
            self._print_scores(console, name, scores)
        if self.curves:
            console.print()
            self._print_curves(console)
        if self.circuit.edges:
            console.print()
            table = grid("who speaks to whom: what is lost without it")
            for start, end, weight in sorted(self.circuit.edges, key=lambda edge: -abs(edge[2]))[:EDGES]:
                table.add_row(Text(f"  {start}"), Text(f"→ {end}"), Text(minus(f"{weight:+.2f}")))
            console.print(table)
        console.print()
        n = len(self.circuit.nodes)
        console.print(Text(f"• one of the circuit's {n} heads: --out circuit.json keeps them", "dim"))

    def _print_scores(self, console: Console, name: str, scores: HeadScores) -> None:
        table = grid(name.replace("_", " "))
        for head, score in scores.best(HEADS):
            mark = "•" if head in self.circuit.nodes else " "
            cells = [minus(f"{score:6.2f}")] if scores.what.startswith("lost") else chance(score, console)
            table.add_row(Text(f"{mark} {head}"), *cells)
        console.print(table)

    def _print_curves(self, console: Console) -> None:
        table, names = grid(header=True), list(self.curves)
        table.add_column("heads", justify="right")
        for name in names:
            table.add_column(name)
            if console.is_terminal:  # of the bars
                table.add_column("")
        for size in self.curves[names[0]]:
            cells = [cell for name in names for cell in chance(self.curves[name][size], console)]
            table.add_row(str(size), *cells)
        console.print(table)


@dataclass(frozen=True, eq=False)
class CircuitTestReport(Report):
    """Whether a circuit is faithful, complete and minimal."""

    preset: str
    circuit: Circuit
    n_nodes: int  # of the model, of the circuit's kind
    same_weights: bool  # it was found in this very model
    faithfulness: float
    completeness: Completeness
    minimality: Mapping[str, float]
    model: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.circuit.name}"

    @property
    def summary(self) -> str:
        return minus(f"{len(self.circuit.nodes)} of {self.n_nodes} heads; alone they keep {self.faithfulness:.0%}")

    def pictures(self) -> dict[str, Picture]:
        raise InputError("a test of a circuit has no picture: save it as .json")

    def to_dict(self) -> dict[str, Any]:
        return {
            "circuit": self.circuit.name,
            "preset": self.preset,
            "nodes": len(self.circuit.nodes),
            "of": self.n_nodes,
            "same_weights": self.same_weights,
            "faithfulness": self.faithfulness,
            "completeness": self.completeness.to_dict(),
            "minimality": dict(self.minimality),
        }

    def json(self) -> str:
        return json_text(self.to_dict()) + "\n"

    def print_to(self, console: Console) -> None:
        table, gap = grid(), self.completeness.gap
        table.add_row(Text("circuit", "dim"), f"{self.circuit.name}, {len(self.circuit.nodes)} of {self.n_nodes} heads")
        table.add_row(Text("faithful", "dim"), minus(f"alone they keep {self.faithfulness:.0%} of the task"))
        tried = len(self.completeness.subsets)
        table.add_row(
            Text("complete", "dim"), f"model and circuit differ by {gap:.0%} without a part (largest of {tried} tried)"
        )
        idle = [node for node, loss in self.minimality.items() if loss <= 0]
        minimal = "each of its heads adds something"
        if idle:
            minimal = f"{len(idle)} add{'s' if len(idle) == 1 else ''} nothing: {', '.join(idle[:IDLE])}"
        table.add_row(Text("minimal", "dim"), Text(minimal + (" …" if len(idle) > IDLE else "")))
        if not self.same_weights:
            table.add_row(Text("found in", "dim"), "a model with other weights")
        console.print(table)
        console.print()
        losses = grid("what is lost without each")
        for node, loss in sorted(self.minimality.items(), key=lambda item: -item[1])[:EDGES]:
            losses.add_row(Text(f"  {node}"), Text(minus(f"{loss:+.1%}").rjust(7)))
        console.print(losses)
