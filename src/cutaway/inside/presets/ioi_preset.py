"""The preset `ioi`: who is given something, when «Mary and John met, and John gave a drink to»."""

from cutaway.inside.circuits.circuit_task import CircuitTask
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.circuits.find import faithfulness_curve, grow_circuit
from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiPrompts, IoiTemplates, ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ROLES, ioi_head_scores, ioi_role
from cutaway.inside.presets.search import LEAST_SCORE, Search
from cutaway.inside.progress import stages
from cutaway.inside.reports.circuit_report import CircuitReport
from cutaway.pictures.terminal_text import minus

STEP, SHARE = 5, 0.8  # nodes that a circuit grows by; the share of the task that it is to keep


def find_ioi(search: Search) -> CircuitReport:
    """Grows a circuit on some prompts, and tests it on others."""
    options, n = search.options, -(-search.options.size // STEP)
    steps = stages(search.progress, 4, 4, 4 * n, 4, n, 4 * n * options.edges)  # in passes, about
    here, there = _prompts(search)
    answers = [_answers(search, here), there.answers(search.model).to_dict()]
    scores = ioi_head_scores(search.model, here)
    steps[0](1, 1)
    task = here.task(search.model, progress=steps[1])
    found = grow_circuit(task, "ioi", to=min(options.size, len(task.among)), by=STEP, progress=steps[2])
    held_out = there.task(search.model, progress=steps[3])
    tested = faithfulness_curve(held_out, found.order, found.curve, progress=steps[4])
    size = found.smallest(SHARE) or max(found.curve)
    roles = {node: ioi_role(node, scores, LEAST_SCORE) for node in found.order[:size]}
    roles_of_nodes = {node: role.replace("_", " ") for node, role in roles.items() if role}
    circuit = found.circuit(size, task="indirect-object identification", roles=roles_of_nodes)
    if options.edges:
        circuit = find_edges(task, circuit, progress=steps[5])
    ahead, right = answers[0]["logit_difference"], answers[0]["accuracy"]
    facts = [
        ("for example", here.texts[0] + " …"),
        ("right name ahead by", minus(f"{ahead:.2f} (in {right:.0%} of prompts)")),
        (
            "its heads",
            minus(f"{size} of {len(task.among)} keep {found.curve[size]:.0%}, {tested[size]:.0%} on other prompts"),
        ),
    ]
    shown = {role: scores[role] for role in (*ROLES, "s_suppression")}
    data = {"found_on": answers[0], "tested_on": answers[1], "found": found.to_dict()}
    return CircuitReport("ioi", circuit, facts, shown, data, {"found": found.curve, "tested": tested})


def ioi_task(search: Search) -> CircuitTask:
    """The task on prompts that no circuit was found on."""
    _, there = _prompts(search)
    _answers(search, there)
    return there.task(search.model, progress=search.progress)


def _prompts(search: Search) -> tuple[IoiPrompts, IoiPrompts]:
    """Prompts to find a circuit on, and others, with other names and sentences, to test it on."""
    search.check_language_model()
    options, start = search.options, search.start_id()
    templates = IOI_TEMPLATES if options.prompts is None else IoiTemplates.read(options.prompts)
    front = [] if start is None else [start]
    here, there = (
        ioi_prompts(search.tokenizer, options.limit or 32, templates=half, seed=seed, front=front)
        for seed, half in enumerate(templates.halves())
    )
    return here, there


def _answers(search: Search, prompts: IoiPrompts) -> dict[str, float]:
    """How well the model answers."""
    found = prompts.answers(search.model).to_dict()
    ahead, right = found["logit_difference"], found["accuracy"]
    if ahead <= 0:
        search.warn_of_failure(f"the right name is ahead by {ahead:.2f}, in {right:.0%} of prompts")
    return found
