"""The table of presets, and the calls that use it: `circuit` and `check_circuit`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cutaway.arguments import with_options
from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask
from cutaway.inside.presets.alignment_preset import find_alignment
from cutaway.inside.presets.coreference_preset import find_coreference
from cutaway.inside.presets.induction_preset import find_induction, induction_task
from cutaway.inside.presets.ioi_preset import find_ioi, ioi_task
from cutaway.inside.presets.search import Search
from cutaway.inside.progress import Progress, no_progress, stages
from cutaway.inside.reports.circuit_report import CircuitReport, CircuitTestReport
from cutaway.inside.reports.options import CircuitOptions
from cutaway.inside.reports.patch_inputs import warn_in_python
from cutaway.inside.residual.decompose import check_blocks
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer


@dataclass(frozen=True)
class Preset:
    """How a circuit is found, and for tasks whose success is a number, the task to test it on."""

    find: Callable[[Search], CircuitReport]
    task: Callable[[Search], CircuitTask] | None = None
    reads_prompts: bool = True
    translates: bool = False


PRESETS: Mapping[str, Preset] = {
    "ioi": Preset(find_ioi, ioi_task),
    "induction": Preset(find_induction, induction_task, reads_prompts=False),
    "coreference": Preset(find_coreference),
    "alignment": Preset(find_alignment, translates=True),
}


@with_options
def circuit(
    model: Model,
    tokenizer: Tokenizer,
    preset: str,
    *,
    progress: Progress = no_progress,
    warn: Callable[[str], None] = warn_in_python,
    name: str = "",
    options: CircuitOptions,
) -> CircuitReport:
    """Finds the heads that do the task of a preset: ioi, induction, coreference or alignment.

    >>> circuit(model, tokenizer, "induction", limit=2, warn=print).save("circuit.json")

    `warn` is called with a message if the model fails the task; `name` is what the report calls the model.
    """
    search, chosen = _search(model, tokenizer, preset, progress=progress, warn=warn, options=options)
    if options.edges and chosen.task is None:
        raise InputError("edges are measured where a number says how well the task is done: preset ioi or induction")
    return replace(chosen.find(search), model=name or search.model.config.family)


@with_options
def check_circuit(
    model: Model,
    tokenizer: Tokenizer,
    circuit: Circuit,
    preset: str,
    *,
    progress: Progress = no_progress,
    warn: Callable[[str], None] = warn_in_python,
    options: CircuitOptions,
) -> CircuitTestReport:
    """Tests whether a circuit is faithful, complete and minimal, on prompts that it was not found on.

    >>> found = Circuit.of(model, "a name", ["decoder.0.attention.1"])
    >>> print(check_circuit(model, tokenizer, found, "induction", limit=2, warn=print))
    """
    circuit.check(model)
    n_roles = len(set(circuit.roles.values()))
    first, then, last = stages(progress, 4, 1 + 2 * (1 + n_roles), 1 + len(circuit.nodes))
    search, chosen = _search(model, tokenizer, preset, progress=first, warn=warn, options=options)
    if chosen.task is None:
        raise InputError("a test needs a number that says how well the task is done: preset ioi or induction")
    task = chosen.task(search)
    share, gaps = faithfulness(task, circuit), completeness(task, circuit, progress=then)
    losses = minimality(task, circuit, progress=last)
    return CircuitTestReport(
        preset, circuit, len(task.among), circuit.same_weights(model), share, gaps, losses, search.model.config.family
    )


def _search(model: Model, tokenizer: Tokenizer, preset: str, **more: Any) -> tuple[Search, Preset]:
    options: CircuitOptions = more["options"]
    if preset not in PRESETS:
        raise InputError(f"preset={preset!r} is not one of {', '.join(PRESETS)}")
    chosen = PRESETS[preset]
    if options.prompts is not None and not chosen.reads_prompts:
        raise InputError(f"prompts={options.prompts}: the preset {preset} repeats random tokens: leave it out")
    if options.to is not None and not chosen.translates:
        raise InputError(f"to={options.to!r} is for translators, and the preset {preset} is not: leave it out")
    model = uncompiled(model)
    check_blocks(model)
    return Search(model, tokenizer, **more), chosen
