"""A task for circuits: prompts, a metric, and the values that replace ablated nodes.

task = circuit_task(model, ids, metric=…, reference=other_ids, groups=templates)
task.measure(["decoder.3.attention.7"])      # one number per row, with every other node ablated
task.effects(shortlist)                      # the loss of the whole model without each node
task.estimates()                             # the same for all nodes, to first order, from a pass and back
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.inside.attribution.rollout import attention_parts
from cutaway.inside.patching.activations import mean_activations, record_activations
from cutaway.inside.patching.interventions import Patch, intervene
from cutaway.inside.patching.metrics import Measure, Metric, at_positions, check_real
from cutaway.inside.patching.place import Place
from cutaway.inside.patching.sweep import POSITIONWISE_HEADS, measure
from cutaway.inside.patching.sweep_plan import check_same_inputs
from cutaway.inside.progress import Progress, counted_progress, no_progress, stages
from cutaway.inside.residual.decompose import check_eval_mode, check_gradients
from cutaway.model.model import Model
from cutaway.model.tap import edit, tap_names, uncompiled
from cutaway.model.upcast import upcast

HEADS, FEED_FORWARDS = "heads", "feed_forwards"
KINDS = (HEADS, FEED_FORWARDS)


def circuit_nodes(model: Model, kinds: Sequence[str] = KINDS) -> tuple[str, ...]:
    """The names of all nodes, heads and feed-forwards, in the order of the pass."""
    unknown = set(kinds) - set(KINDS)
    if unknown or not kinds:
        raise InputError(f"kinds={list(kinds)}: nodes are {' and '.join(KINDS)}")
    heads = attention_parts(uncompiled(model))
    names: list[str] = []
    for tap in tap_names(model):
        part, _, last = tap.rpartition(".")
        if HEADS in kinds and last == "heads":
            names += [f"{part}.{head}" for head in range(heads[part].n_heads)]
        if FEED_FORWARDS in kinds and part.endswith(".feed_forward") and last == "output":
            names.append(part)
    return tuple(names)


def node_place(node: str) -> Place:
    return Place(f"{node}.output") if node.endswith(".feed_forward") else Place.of(node)


@dataclass(frozen=True, eq=False)
class CircuitTask:
    """See `circuit_task`. `whole` is the metric of the whole model, `none` that with all nodes (`among`) ablated."""

    model: Model
    inputs: tuple[Tensor, ...]
    more: Mapping[str, Any]
    metric: Measure
    among: tuple[str, ...]
    instead: Mapping[str, Tensor]
    rows: int
    whole: Float[Tensor, " batch"]
    none: Float[Tensor, " batch"]

    def measure(self, kept: Iterable[str]) -> Float[Tensor, " batch"]:
        """The metric of every row with all nodes but these ablated."""
        kept = set(self.known(kept))
        gone = [node for node in self.among if node not in kept]
        return self.patched([(Place(tap, heads), self.instead) for tap, heads in _by_tap(gone).items()])

    @torch.no_grad()
    def patched(self, changes: Sequence[tuple[Place, Mapping[str, Tensor]]]) -> Float[Tensor, " batch"]:
        """The metric of every row with places as in a source, which has all rows."""
        found = []
        for some, inputs, more, _ in self._portions():
            its = [Patch(place, source[place.tap][some]) for place, source in changes]
            with intervene(self.model, its):
                found.append(self.model.hidden(*inputs, **more))
        return self._read(torch.cat(found))

    def known(self, nodes: Iterable[str]) -> list[str]:
        nodes = list(nodes)
        for node in sorted(set(nodes) - set(self.among)):
            raise InputError(f"{node!r} is not among the {len(self.among)} nodes of this task: {self.among[0]} …")
        return nodes

    def share(self, values: Float[Tensor, " batch"]) -> float:
        """The mean over rows, rescaled: 0 with all nodes ablated, 1 as the whole model."""
        low, high = self.none.double().mean(), self.whole.double().mean()
        if low == high:
            raise InputError(
                "the metric is the same with and without all nodes, so there is nothing for a circuit to keep"
            )
        return ((values.double().mean() - low) / (high - low)).item()

    def effects(self, nodes: Iterable[str] | None = None, *, progress: Progress = no_progress) -> dict[str, float]:
        """By how much the mean of the metric falls when each node alone is ablated."""
        whole = self.whole.mean()
        found = {}
        for node in counted_progress(self.known(self.among if nodes is None else nodes), progress):
            found[node] = (whole - self.measure(other for other in self.among if other != node).mean()).item()
        return found

    def estimates(self, kept: Iterable[str] | None = None, *, progress: Progress = no_progress) -> dict[str, float]:
        """The first-order effect of every node beside those that are `kept` (by default all)."""
        check_gradients(self.model)
        kept = set(self.known(self.among if kept is None else kept))
        gone = _by_tap(node for node in self.among if node not in kept)
        worth = dict.fromkeys(self.instead, torch.zeros(()))
        n = len(self.inputs[0])
        for some, inputs, more, instead in counted_progress(list(self._portions()), progress):
            probes = {tap: _Probe(value) for tap, value in instead.items()}
            changes = [Patch(Place(tap, heads), instead) for tap, heads in gone.items()]
            first, last = ({tap: getattr(probe, way) for tap, probe in probes.items()} for way in ("see", "add"))
            with torch.enable_grad(), edit(self.model, first), intervene(self.model, changes), edit(self.model, last):
                hidden = self.model.hidden(*inputs, **more)
                after = n - some.start - len(hidden)
                every = F.pad(hidden, (0, 0, 0, 0, some.start, after))  # a metric is of all rows, each by itself
                total = self._read(every)[some].sum()
            found = torch.autograd.grad(total, [probe.leaf for probe in probes.values()])
            for (tap, probe), gradient in zip(probes.items(), found, strict=True):
                axes = [axis for axis in range(gradient.ndim) if axis != 1 or not tap.endswith(".heads")]
                worth[tap] = worth[tap] + (probe.moved * gradient).sum(axes)
        places = {node: node_place(node) for node in self.among}
        each = {node: worth[place.tap][... if place.heads is None else place.heads] for node, place in places.items()}
        return {node: value.item() / n for node, value in each.items()}

    def _read(self, hidden: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, " batch"]:
        """The metric; a position-wise head runs only at the positions of the metric."""
        head = self.model.head
        if isinstance(self.metric, Metric) and isinstance(head, POSITIONWISE_HEADS):
            check_real(self.metric, hidden, self.more.get("real"))
            batch, seq, _ = hidden.shape
            positions = self.metric.positions(batch, seq, hidden.device)
            return self.metric.read(upcast(head(at_positions(hidden, positions)))).mean(dim=1)
        real = self.more.get("real")
        return measure(self.metric, head(hidden, real), real)

    def _portions(self) -> Iterator[tuple[slice, list[Tensor], dict[str, Any], dict[str, Tensor]]]:
        """`rows` at a time: the rows, their inputs, and the replacements of their nodes."""
        for start in range(0, len(self.inputs[0]), self.rows):
            some = slice(start, start + self.rows)
            more = {name: x[some] if isinstance(x, Tensor) else x for name, x in self.more.items()}
            yield some, [x[some] for x in self.inputs], more, {tap: x[some] for tap, x in self.instead.items()}


class _Probe:
    """The value of one tap before nodes are ablated, and a leaf for its gradient after that."""

    def __init__(self, instead: Tensor) -> None:
        self.instead = instead

    def see(self, value: Tensor) -> Tensor:
        self.moved = (value - self.instead).detach()  # with the node, less without it
        return value

    def add(self, value: Tensor) -> Tensor:
        self.leaf = torch.zeros_like(value, requires_grad=True)
        return value + self.leaf


@checked
@torch.no_grad()
def circuit_task(
    model: Model,
    *inputs: Tensor,
    metric: Measure,
    reference: Tensor | Sequence[Tensor] | None = None,
    how: Literal["mean", "resample", "zero"] = "mean",
    groups: Sequence[Hashable] | None = None,
    kinds: Sequence[str] = (HEADS,),
    rows: int = 128,
    progress: Progress = no_progress,
    **more: Any,
) -> CircuitTask:
    """A task on which circuits are found and tested; `reference` are other prompts of the same lengths as `inputs`.

    >>> circuit_task(model, ids, metric=metric, reference=other_ids).whole

    An ablated node is replaced by its `mean` at the same position over the reference (by default the inputs), among the
    rows of the same group (a template, in which a position always means the same); with `resample`, by its value in the
    row's own reference; or by `zero`. Only nodes of these `kinds` ("heads", "feed_forwards") are ablated. `rows` are
    computed at a time; further inputs (`real=`, `source_real=`) go to both.
    """
    model = uncompiled(model)
    check_eval_mode(model)
    if how == "resample" and reference is None:
        raise InputError("resampling needs prompts to take values from: reference=…, of the same lengths as the inputs")
    others = inputs if reference is None else (reference,) if isinstance(reference, Tensor) else tuple(reference)
    check_same_inputs("inputs", inputs, "their reference", others)
    for own, other in zip(inputs, others, strict=True):
        if own.shape != other.shape:
            raise InputError(
                f"inputs of shape {tuple(own.shape)}, and a reference of {tuple(other.shape)}: both need one shape"
            )
    among = circuit_nodes(model, kinds)
    taps = list(_by_tap(among))
    first, then = stages(progress, 1, 2)
    members = _members(groups, len(others[0]))
    if how == "mean" and reference is None and min(map(len, members.values())) < 2:
        raise InputError(
            "the mean over one row is the row itself, so that nothing would be ablated: give at least two rows of each "
            "group, or a reference=…"
        )
    instead = _instead(model, others, taps, how, members, rows, more, first)
    asked = CircuitTask(model, inputs, more, metric, among, instead, rows, torch.zeros(0), torch.zeros(0))
    whole, none = (asked.measure(kept) for kept in counted_progress((among, ()), then))
    return replace(asked, whole=whole, none=none)


def _members(groups: Sequence[Hashable] | None, n: int) -> dict[Hashable, list[int]]:
    """The rows of each group."""
    groups = [0] * n if groups is None else groups
    if len(groups) != n:
        raise InputError(f"{len(groups)} groups for {n} rows: give one for each")
    found: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return found


def _instead(
    model: Model,
    others: Sequence[Tensor],
    taps: list[str],
    how: str,
    members: dict[Hashable, list[int]],
    rows: int,
    more: Mapping[str, Any],
    progress: Progress,
) -> dict[str, Tensor]:
    n = len(others[0])
    if how not in ("mean", "resample", "zero"):
        raise InputError(f"how={how!r} is not one of mean, resample, zero")
    if how != "mean":  # every row by itself
        members = {start: list(range(start, min(start + rows, n))) for start in range(0, n, rows)}
    found: dict[str, Tensor] = {}
    for its in counted_progress(list(members.values()), progress):
        inputs = [x[its] for x in others]
        part: dict[str, Any] = {name: x[its] if isinstance(x, Tensor) else x for name, x in more.items()}
        if how == "mean":
            values: Mapping[str, Tensor] = mean_activations(
                model, *inputs, places=taps, per_position=True, rows=rows, **part
            )
        else:
            values = record_activations(model, *inputs, places=taps, **part)
        for tap, value in values.items():
            value = torch.zeros_like(value) if how == "zero" else value
            if tap not in found:
                found[tap] = value.new_zeros(n, *value.shape[1:])
            found[tap][its] = value
    return found


def _by_tap(nodes: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """The taps of nodes, and which of their heads; None means the whole tap."""
    found: dict[str, tuple[int, ...] | None] = {}
    for node in nodes:
        place = node_place(node)
        if place.heads is None:
            found[place.tap] = None
        else:
            assert isinstance(place.heads, int)
            found[place.tap] = (*(found.get(place.tap) or ()), place.heads)
    return found
