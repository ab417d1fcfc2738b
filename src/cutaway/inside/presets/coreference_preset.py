"""The preset `coreference`: which heads look from a pronoun to its antecedent, in Winograd schemas."""

from typing import Any

from cutaway.errors import InputError
from cutaway.evaluation.winograd_files import read_schemas
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.coreference import accuracy_without_heads, coreference_heads
from cutaway.inside.presets.search import LISTED, Search
from cutaway.inside.progress import stages
from cutaway.inside.reports.circuit_report import CircuitReport


def find_coreference(search: Search) -> CircuitReport:
    """The heads that prefer the antecedent in half of the schemas, and what the other half loses without them."""
    file = search.prompts_file("Winograd schemas, such as WSC273 (a sentence, its pronoun, candidates, the right one)")
    schemas = read_schemas([file], search.options.limit)
    if not schemas or len(schemas) < 2:
        raise InputError(f"prompts={file} has no two Winograd schemas: a sentence, its pronoun, candidates, the answer")
    here, there = schemas[: len(schemas) // 2], schemas[len(schemas) // 2 :]
    first, then = stages(search.progress, 1, 9)
    found = coreference_heads(search.model, search.tokenizer, here, progress=first)
    # half of all heads at most, so that as many others can be drawn to compare with
    best = found.prefers.best(max(1, min(LISTED, search.options.size, len(found.prefers.scores) // 2)))
    without = accuracy_without_heads(search.model, search.tokenizer, there, [node for node, _ in best], progress=then)
    more: dict[str, Any] = {"task": "Winograd schemas", "found_with": f"looks from the {found.where}"}
    roles = {node: "looks at the antecedent" for node, _ in best}
    circuit = Circuit.of(search.model, "coreference", dict(best), effects=dict(best), roles=roles, **more)
    by_chance = sum(without.without_random) / len(without.without_random)
    sentences = f"{found.n} sentence{'' if found.n == 1 else 's'}"
    facts = [
        ("looks from", f"the {found.where} of {sentences} ({found.skipped} left out)"),
        ("right answers", f"{without.whole:.0%} of {without.n} others; of two candidates, chance is 50%"),
        (f"without these {len(best)}", f"{without.without:.0%}; without {len(best)} at random {by_chance:.0%}"),
    ]
    scores = {"prefers the right one": found.prefers, "looks at it": found.looks}
    return CircuitReport("coreference", circuit, facts, scores, {**found.to_dict(), "matters": without.to_dict()})
