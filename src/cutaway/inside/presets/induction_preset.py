"""The preset `induction`: random tokens, repeated once."""

from typing import Any

from torch import Tensor

from cutaway.inside.circuits.circuit import Circuit, faithfulness
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.circuits.induction import InductionHeads, induction_heads, repeated_tokens
from cutaway.inside.presets.search import LEAST_SCORE, LISTED, Search
from cutaway.inside.progress import stages
from cutaway.inside.reports.circuit_report import CircuitReport
from cutaway.model.upcast import upcast
from cutaway.pictures.terminal_text import minus


def find_induction(search: Search) -> CircuitReport:
    """The induction heads and previous-token heads, and how much of the task they keep."""
    found = induction_heads(search.model, repeated_rows(search))
    if found.loss[1] >= found.loss[0]:
        search.warn_of_failure(f"a token said again costs {found.loss[1]:.2f} nats, the first time {found.loss[0]:.2f}")
    scores = {"induction": found.induction, "previous token": found.previous, "duplicate token": found.duplicate}
    nodes = _roles(found, search.options.size) or {node: "induction" for node, _ in found.induction.best(1)}
    effects = {node: scores[role].scores[node] for node, role in nodes.items()}
    more: dict[str, Any] = {"task": "random tokens said twice", "found_with": f"scores of at least {LEAST_SCORE}"}
    circuit = Circuit.of(search.model, "induction", nodes, roles=nodes, effects=effects, **more)
    first, then = stages(search.progress, 4, 8 * search.options.edges)
    task = induction_task(search.with_progress(first))
    kept = faithfulness(task, circuit)
    if search.options.edges:
        circuit = find_edges(task, circuit, progress=then)
    keep = " alone keeps" if len(nodes) == 1 else "s alone keep"
    facts = [
        ("a token costs", f"{found.loss[0]:.2f} nats the first time, {found.loss[1]:.2f} the second"),
        ("induction heads", f"{len(_high(found.induction))} with a score of at least {LEAST_SCORE}"),
        (
            "they and what feeds them",
            minus(f"{len(nodes)} head{keep} {kept:.0%} of what the second time is worth"),
        ),
    ]
    return CircuitReport("induction", circuit, facts, scores, found.to_dict() | {"faithfulness": kept})


def induction_task(search: Search) -> CircuitTask:
    """log p of the repeated tokens; ablated nodes are as on tokens that are not repeated."""
    seed = 1
    ids, unlike = repeated_rows(search, seed), repeated_rows(search, seed + 100).clone()
    length, front = divmod(ids.shape[1], 2)
    again = slice(front + length, ids.shape[1] - 1)

    def log_p_of_repeated(logits: Tensor) -> Tensor:
        log_p = upcast(logits[:, again]).log_softmax(dim=-1)
        return log_p.gather(-1, ids[:, front + length + 1 :, None])[..., 0].mean(dim=1)

    unlike[:, front + length :] = repeated_rows(search, seed + 200)[:, front : front + length]
    return circuit_task(search.model, ids, metric=log_p_of_repeated, reference=unlike, progress=search.progress)


def repeated_rows(search: Search, seed: int = 0) -> Tensor:
    """Rows of random tokens of this model, each repeated once."""
    search.check_language_model()
    model, tokenizer = search.model, search.tokenizer
    length = min(32, ((getattr(model, "max_len", None) or 65) - 1) // 2)
    least = max(tokenizer.special_ids().values(), default=-1) + 1
    n = min(tokenizer.vocab_size, model.config.to_dict()["vocab_size"])
    least = least if n - least > length else 0  # special tokens may be the last ones of a vocabulary
    ids = repeated_tokens(
        n, rows=search.options.limit or 8, length=min(length, n), seed=seed, start_id=search.start_id(), least=least
    )
    return ids.to(model.device)


def _high(scores: HeadScores) -> list[str]:
    return [node for node, score in scores.best(len(scores.scores)) if score >= LEAST_SCORE]


def _roles(found: InductionHeads, size: int) -> dict[str, str]:
    """At most `size` heads and their roles: the best of one role, the best of the other, and so on in turn."""
    first = _high(found.induction)
    then = [node for node in _high(found.previous)[:LISTED] if node not in first]
    ranked = [
        (rank, role, node)
        for role, nodes in (("induction", first), ("previous token", then))
        for rank, node in enumerate(nodes)
    ]
    return {node: role for _, role, node in sorted(ranked, key=lambda one: one[0])[:size]}
