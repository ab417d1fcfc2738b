"""A beam search to look at: every hypothesis that was weighed, and what became of it.

    trace = trace_beam(model, Job(prompt=[1], source=[5, 6, 2], limit=20), beam=4)
    trace.to_dict(spell=lambda id: tokenizer.decode([id]))     # plain data, for a page that draws the tree

Every step grows the tree by one level. A node was **kept** (it holds a `place` in the beam, and the next step goes on
from it), **finished** (put aside as a whole text; `rank` says where among the texts that were found, if it stayed among
them) or **dropped** (it was weighed, but others were better).
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from cutaway.arguments import option, with_options
from cutaway.decoding.engine.run import run_jobs
from cutaway.decoding.options import MAX_BEAM, SearchOptions
from cutaway.decoding.search.beam import Considered
from cutaway.decoding.search.search import NEVER, Hypothesis, Job
from cutaway.model.model import DecoderModel

ROOT = 0  # the node of the prompt


@dataclass(frozen=True, kw_only=True)
class TraceOptions(SearchOptions):
    """Those of `run_jobs`, with a beam unless another size is asked for."""

    beam: int = option(4, "Beam size.", least=1, most=MAX_BEAM)


@dataclass(frozen=True)
class Node:
    """One token more than its parent."""

    id: int  # nodes are counted from 1 in the order of the steps
    parent: int
    token: int
    log_p: float  # of this token, after all before it
    total: float  # the sum of the log p of all its tokens: what hypotheses of one length are chosen by
    score: float  # total / length^length_penalty: what finished texts of different lengths are ranked by
    fate: Literal["kept", "dropped", "finished"]
    group: int
    place: int | None = None
    rank: int | None = None


@dataclass
class BeamTrace:
    """The tree of one search; `steps[i]` are the nodes of the texts of i + 1 tokens."""

    job: Job
    options: dict[str, Any]
    length_penalty: float = 1.0
    steps: list[list[Node]] = field(default_factory=list)
    found: list[Hypothesis] = field(default_factory=list)
    _beam: dict[int, Node] = field(default_factory=dict)  # who holds each place
    _n_nodes: int = 0

    def hear(self, step: Considered) -> None:
        """One group's step: what a `BeamSearch` tells its listener, in an engine of one row."""
        if step.group == 0:
            self.steps.append([])
        each = step.chosen.shape[1]
        goes_on = step.chosen[0].tolist()
        places = {
            candidate: step.group * each + i
            for i, candidate in enumerate(goes_on)
            if step.going_on[0, i] > NEVER
        }  # fmt: skip
        beam = dict(self._beam)
        columns = (x[0].tolist() for x in (step.parents, step.tokens, step.scores, step.ended))
        for candidate, (place, token, total, ended) in enumerate(zip(*columns, strict=True)):
            if total == NEVER:  # forbidden, or it goes on from a place that is empty
                continue
            parent = self._beam.get(place)
            self._n_nodes += 1
            node = Node(
                id=self._n_nodes,
                parent=parent.id if parent else ROOT,
                token=token,
                log_p=total - (parent.total if parent else 0.0),
                total=total,
                score=total / len(self.steps) ** self.length_penalty,
                fate="finished" if ended else "kept" if candidate in places else "dropped",
                group=step.group,
                place=places.get(candidate),
            )
            self.steps[-1].append(node)
            if node.place is not None:
                beam[node.place] = node
        self._beam = beam

    def text(self, node: Node) -> list[int]:
        """The tokens that were written up to this node."""
        by_id = {other.id: other for step in self.steps for other in step}
        ids = [node.token]
        while node.parent != ROOT:
            node = by_id[node.parent]
            ids.append(node.token)
        return ids[::-1]

    def close(self, found: list[Hypothesis]) -> None:
        """Tells every finished node its rank among the texts that were found."""
        self.found = found
        ranks = {tuple(hypothesis.ids): rank for rank, hypothesis in enumerate(found)}
        for step in self.steps:
            for i, node in enumerate(step):
                if node.fate == "finished" and (rank := ranks.get(tuple(self.text(node)))) is not None:
                    step[i] = Node(**{**asdict(node), "rank": rank})

    def to_dict(self, spell: Callable[[int], str] | None = None) -> dict[str, Any]:
        """Plain data: numbers, lists and, from `spell`, the text of each token."""

        def spelled(node: Node) -> dict[str, Any]:
            return {**asdict(node), **({} if spell is None else {"text": spell(node.token)})}

        return {
            "prompt": list(self.job.prompt),
            "source": list(self.job.source),
            "limit": self.job.limit,
            "options": self.options,
            "steps": [[spelled(node) for node in step] for step in self.steps],
            "found": [asdict(hypothesis) for hypothesis in self.found],
        }

    def to_json(self, spell: Callable[[int], str] | None = None) -> str:
        return json.dumps(self.to_dict(spell), allow_nan=False)


@with_options
def trace_beam(model: DecoderModel, job: Job, *, options: TraceOptions) -> BeamTrace:
    """Runs `run_jobs(model, [job], …)` and records every hypothesis that the search considers."""
    changed = {one.name: getattr(options, one.name) for one in fields(options)
               if one.name in ("beam", "length_penalty") or getattr(options, one.name) != one.default}  # fmt: skip
    plain = {name: value for name, value in changed.items() if isinstance(value, str | int | float)}
    trace = BeamTrace(job, plain, options.length_penalty)
    (found,) = run_jobs(model, [job], listener=trace.hear, options=options)
    trace.close(found)
    return trace
