"""The presets of `cutaway circuit`: a task, the heads that do it, and how much of it they keep."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.format import minus
from cutaway.errors import InputError
from cutaway.files import read_text

if TYPE_CHECKING:
    from torch import Tensor

    from cutaway.inside.circuits.circuit import Circuit
    from cutaway.inside.circuits.circuit_eval import Trial
    from cutaway.inside.circuits.head_scores import HeadScores
    from cutaway.inside.circuits.induction import Induction
    from cutaway.inside.circuits.ioi import Prompts
    from cutaway.inside.progress import Told
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer

STEP, ENOUGH = 5, 0.8  # nodes that a circuit grows by; the share of the task that it is to keep
SURE = 0.3  # a head that looks this much where a role says has the role
KEPT = 10  # heads of a circuit that is a list of scores
MEASURED = ("ioi", "induction")  # tasks with a number that says how well they are done


@dataclass(frozen=True)
class PresetOptions:
    """What was asked for."""

    prompts: Path | None
    limit: int | None
    size: int
    to: str | None
    edges: bool = False


@dataclass(frozen=True)
class Studied:
    """What a preset found."""

    circuit: "Circuit"
    facts: Sequence[tuple[str, str]]  # for people: what, and how much
    scores: "dict[str, HeadScores]"
    data: dict[str, Any]
    curves: dict[str, dict[int, float]] = field(default_factory=dict)  # faithfulness against size


def run_preset(preset: str, model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> Studied:
    ways: dict[str, Callable[..., Studied]] = {
        "ioi": _ioi,
        "induction": _induction,
        "coreference": _coreference,
        "alignment": _alignment,
    }
    _check_options(preset, wishes)
    if wishes.edges and preset not in MEASURED:
        raise InputError(
            "--edges patches paths where a number says how well the task is done: --preset ioi or induction"
        )
    return ways[preset](model, tokenizer, wishes, report)


def trial_of(preset: str, model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> "Trial":
    """What a circuit of this preset is put to the test on: prompts that it was not found on."""
    if preset not in MEASURED:
        raise InputError(
            "--test takes nodes away where a number says how well the task is done: --preset ioi or induction"
        )
    _check_options(preset, wishes)
    if preset == "ioi":
        _, there = _prompts(model, tokenizer, wishes)
        _answered(there, model)
        return there.trial(model, report=report)
    return _repeating(model, tokenizer, wishes, seed=1, report=report)


def _check_options(preset: str, wishes: PresetOptions) -> None:
    if wishes.prompts is not None and preset == "induction":
        raise InputError("--prompts: induction says random tokens twice, and reads no file: leave it out")
    if wishes.to is not None and preset != "alignment":
        raise InputError(f"--to {wishes.to} is for translators, and {preset} is not: leave it out")


def _fails(what: str) -> None:
    """Says so before the long part: whoever looks for heads of a task that is not done finds some all the same."""
    print(f"warning: this model fails the task: {minus(what)}; its heads do something else", file=sys.stderr)


def _writes(model: "Model") -> None:
    if model.config.task != "language_model":
        raise InputError(
            f"this preset is for models that say what is next, and this one is for task={model.config.task!r}"
        )


# --- the indirect object ----------------------------------------------------------------------------------------------


def _prompts(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions) -> "tuple[Prompts, Prompts]":
    """To find something on, and others, with other names and sentences, to test it on."""
    from cutaway.inside.circuits.ioi import OURS, Templates, make_prompts

    _writes(model)
    templates = OURS if wishes.prompts is None else Templates.read(wishes.prompts)
    start = model.config.start_id
    front = [start] if start is not None and tokenizer.begins_with(start, model.config.end_ids or ()) else []
    here, there = (
        make_prompts(tokenizer, wishes.limit or 32, templates=half, seed=seed, front=front)
        for seed, half in enumerate(templates.halves())
    )
    return here, there


def _answered(prompts: "Prompts", model: "Model") -> dict[str, float]:
    """How well they are answered."""
    found = prompts.answers(model).to_dict()
    if found["logit_difference"] <= 0:
        ahead, right = found["logit_difference"], found["accuracy"]
        _fails(f"the right name is ahead by {ahead:.2f}, in {right:.0%} of prompts")
    return found


def _ioi(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> Studied:
    from cutaway.inside.circuits.edges import connect
    from cutaway.inside.circuits.find import curve, grow
    from cutaway.inside.circuits.ioi import ROLES, head_scores, role_of
    from cutaway.inside.progress import stages

    n = -(-wishes.size // STEP)
    told = stages(report, 4, 4, 4 * n, 4, n, 4 * n * wishes.edges)  # in passes, about
    here, there = _prompts(model, tokenizer, wishes)
    answers = [_answered(here, model), there.answers(model).to_dict()]
    scores = head_scores(model, here)
    told[0](1, 1)
    asked = here.trial(model, report=told[1])
    found = grow(asked, "ioi", to=min(wishes.size, len(asked.among)), by=STEP, report=told[2])
    tested = curve(there.trial(model, report=told[3]), found.order, found.curve, report=told[4])
    size = found.smallest(ENOUGH) or max(found.curve)
    roles = {node: role.replace("_", " ") for node in found.order[:size] if (role := role_of(node, scores, SURE))}
    circuit = found.circuit(size, task="indirect-object identification", roles=roles)
    if wishes.edges:
        circuit = connect(asked, circuit, report=told[5])
    facts = [
        ("for example", here.texts[0] + " …"),
        (
            "right name ahead by",
            minus(f"{answers[0]['logit_difference']:.2f} (in {answers[0]['accuracy']:.0%} of prompts)"),
        ),
        (
            "its heads",
            minus(f"{size} of {len(asked.among)} keep {found.curve[size]:.0%}, {tested[size]:.0%} on other prompts"),
        ),
    ]
    shown = {role: scores[role] for role in (*ROLES, "s_suppression")}
    data = {"found_on": answers[0], "tested_on": answers[1], "found": found.to_dict()}
    return Studied(circuit, facts, shown, data, {"found": found.curve, "tested": tested})


# --- induction --------------------------------------------------------------------------------------------------------


def twice(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, seed: int) -> "Tensor":
    """Rows of random tokens of this model, each said twice."""
    from cutaway.inside.circuits.induction import repeated_tokens

    _writes(model)
    start = model.config.start_id
    front = start if start is not None and tokenizer.begins_with(start, model.config.end_ids or ()) else None
    length = min(32, ((getattr(model, "max_len", None) or 65) - 1) // 2)
    least = max(tokenizer.special_ids().values(), default=-1) + 1
    n = min(tokenizer.vocab_size, model.config.to_dict()["vocab_size"])
    least = least if n - least > length else 0  # special tokens may be the last ones of a vocabulary
    ids = repeated_tokens(n, rows=wishes.limit or 8, length=min(length, n), seed=seed, start_id=front, least=least)
    return ids.to(model.device)


def _repeating(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, *, seed: int, report: "Told") -> "Trial":
    """log p of the tokens that are said again; what is taken away is as where nothing is."""
    from cutaway.inside.circuits.circuit_eval import trial
    from cutaway.model.upcast import upcast

    ids, other = twice(model, tokenizer, wishes, seed), twice(model, tokenizer, wishes, seed + 100)
    length, front = divmod(ids.shape[1], 2)
    again = slice(front + length, ids.shape[1] - 1)

    def known(logits: "Tensor") -> "Tensor":
        log_p = upcast(logits[:, again]).log_softmax(dim=-1)
        return log_p.gather(-1, ids[:, front + length + 1 :, None])[..., 0].mean(dim=1)

    unlike = other.clone()
    unlike[:, front + length :] = twice(model, tokenizer, wishes, seed + 200)[:, front : front + length]
    return trial(model, ids, metric=known, reference=unlike, report=report)


def _sure(scores: "HeadScores") -> list[str]:
    return [node for node, score in scores.best(len(scores.scores)) if score >= SURE]


def _in_turn(found: "Induction", size: int) -> dict[str, str]:
    """Heads by role, `size` of both together: the best of one, the best of the other, and so on."""
    first = _sure(found.induction)
    then = [node for node in _sure(found.previous)[:KEPT] if node not in first]
    ranked = [
        (rank, role, node)
        for role, nodes in (("induction", first), ("previous token", then))
        for rank, node in enumerate(nodes)
    ]
    return {node: role for _, role, node in sorted(ranked, key=lambda one: one[0])[:size]}


def _induction(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> Studied:
    from cutaway.inside.circuits.circuit import Circuit, faithfulness
    from cutaway.inside.circuits.edges import connect
    from cutaway.inside.circuits.induction import induction
    from cutaway.inside.progress import stages

    found = induction(model, twice(model, tokenizer, wishes, 0))
    if found.loss[1] >= found.loss[0]:
        _fails(f"a token said again costs {found.loss[1]:.2f} nats, the first time {found.loss[0]:.2f}")
    scores = {"induction": found.induction, "previous token": found.previous, "duplicate token": found.duplicate}
    roles = _in_turn(found, wishes.size)
    nodes = roles or {node: "induction" for node, _ in found.induction.best(1)}
    effects = {node: scores[role].scores[node] for node, role in nodes.items()}
    more: dict[str, Any] = {"task": "random tokens said twice", "found_with": f"scores of at least {SURE}"}
    circuit = Circuit.of(model, "induction", nodes, roles=nodes, effects=effects, **more)
    first, then = stages(report, 4, 8 * wishes.edges)
    asked = _repeating(model, tokenizer, wishes, seed=1, report=first)
    kept = faithfulness(asked, circuit)
    if wishes.edges:
        circuit = connect(asked, circuit, report=then)
    facts = [
        ("a token costs", f"{found.loss[0]:.2f} nats the first time, {found.loss[1]:.2f} the second"),
        ("induction heads", f"{len(_sure(found.induction))} with a score of at least {SURE}"),
        (
            "they and what feeds them",
            minus(
                f"{len(nodes)} head{' alone keeps' if len(nodes) == 1 else 's alone keep'} {kept:.0%} of what the "
                "second time is worth"
            ),
        ),
    ]
    return Studied(circuit, facts, scores, found.to_dict() | {"faithfulness": kept})


# --- whom «it» means, and what is aligned -----------------------------------------------------------------------------


def _file(wishes: PresetOptions, what: str) -> Path:
    if wishes.prompts is None:
        raise InputError(f"this preset needs {what}: --prompts FILE (--help has an example)")
    if not wishes.prompts.is_file():
        raise InputError(f"--prompts {wishes.prompts} is no file")
    return wishes.prompts


def _coreference(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> Studied:
    from cutaway.evaluation.winograd_files import read_schemas
    from cutaway.inside.circuits.circuit import Circuit
    from cutaway.inside.circuits.coreference import coreference, matters
    from cutaway.inside.progress import stages

    file = _file(wishes, "Winograd schemas, such as WSC273 (a sentence, its pronoun, candidates, the right one)")
    schemas = read_schemas([file], wishes.limit)
    if not schemas or len(schemas) < 2:
        raise InputError(
            f"--prompts {file} has no two Winograd schemas: a sentence, its pronoun, candidates, the answer"
        )
    here, there = schemas[: len(schemas) // 2], schemas[len(schemas) // 2 :]
    looking, taking = stages(report, 1, 9)
    found = coreference(model, tokenizer, here, report=looking)
    # as many are drawn from the others, to compare: there have to be so many
    best = found.prefers.best(max(1, min(KEPT, wishes.size, len(found.prefers.scores) // 2)))
    told = matters(model, tokenizer, there, [node for node, _ in best], report=taking)
    more: dict[str, Any] = {"task": "Winograd schemas", "found_with": f"looks from the {found.where}"}
    roles = {node: "looks at the antecedent" for node, _ in best}
    circuit = Circuit.of(model, "coreference", dict(best), effects=dict(best), roles=roles, **more)
    by_chance = sum(told.without_random) / len(told.without_random)
    facts = [
        (
            "looks from",
            f"the {found.where} of {found.n} sentence{'' if found.n == 1 else 's'} ({found.skipped} left out)",
        ),
        ("right answers", f"{told.whole:.0%} of {told.n} others; of two candidates, chance is 50%"),
        (f"without these {len(best)}", f"{told.without:.0%}; without {len(best)} at random {by_chance:.0%}"),
    ]
    data = {**found.to_dict(), "matters": told.to_dict()}
    return Studied(circuit, facts, {"prefers the right one": found.prefers, "looks at it": found.looks}, data)


def _alignment(model: "Model", tokenizer: "Tokenizer", wishes: PresetOptions, report: "Told") -> Studied:
    from cutaway.decoding.translate import tag_for, translations
    from cutaway.inside.circuits.alignment_heads import aligning
    from cutaway.inside.circuits.circuit import Circuit
    from cutaway.inside.progress import stages
    from cutaway.model.model import EncoderDecoderModel

    if not isinstance(model, EncoderDecoderModel):
        raise InputError(f"alignment is of translators, and this is a {model.config.family} model")
    file = _file(
        wishes, "sentences with names or numbers, a line each, and after a tab their translation if there is one"
    )
    lines = [line for line in read_text(file).splitlines() if line.strip()][: wishes.limit or 64]
    if not lines:
        raise InputError(f"--prompts {file} is empty: write sentences with names or numbers, a line each")
    sources, targets = (list(side) for side in zip(*(_pair(line) for line in lines), strict=True))
    alone = [source for source, target in zip(sources, targets, strict=True) if not target]
    translating, taking = stages(report, 1 if alone else 0, 1)
    if alone:
        made = iter(translations(model, tokenizer, alone, to=wishes.to, split=False, progress=translating))
        targets = [target or next(made).text for target in targets]
    found = aligning(model, tokenizer, sources, targets, tag=tag_for(tokenizer, wishes.to), report=taking)
    best = found.copies.best(min(KEPT, wishes.size))
    more: dict[str, Any] = {"task": "translation", "found_with": "copied words whose source a head looks at"}
    roles = {node: "aligns copies" for node, _ in best}
    circuit = Circuit.of(model, "alignment", dict(best), effects=dict(best), roles=roles, **more)
    (strongest, loss), *_ = found.lost_copied.best(1)
    facts = [
        ("copied words", f"{found.n_copied} of {found.n_words}"),
        ("log p of a token", minus(f"{found.log_p:.2f}; of a copied one {found.log_p_copied:.2f}")),
        ("most missed", f"{strongest}: without it a copied token loses {minus(f'{loss:.2f}')} nats"),
    ]
    scores = {"finds copies": found.copies, "agrees with all": found.agrees, "missed for copies": found.lost_copied}
    return Studied(circuit, facts, scores, found.to_dict())


def _pair(line: str) -> tuple[str, str]:
    """A source and, behind a tab, its translation if there is one."""
    source, _, target = line.partition("\t")
    return source.strip(), target.strip()
