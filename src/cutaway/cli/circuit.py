"""`cutaway circuit`: which heads do a task, as data that can be saved and put to the test."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.format import minus
from cutaway.cli.shared.inside import (
    Force,
    Out,
    To,
    Which,
    as_text,
    check_output,
    open_model,
    screen,
    waiting,
    write_output,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.cli.circuit_presets import PresetOptions, Studied
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer


class Preset(StrEnum):
    """The task."""

    ioi = "ioi"
    induction = "induction"
    coreference = "coreference"
    alignment = "alignment"


SHOWN, EDGES = 3, 8  # heads of each kind, and edges, in a terminal
Task = Annotated[Preset, typer.Option("--preset", help="Mary and John; tokens said twice; whom «it» means; copies.")]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help="ioi: templates (JSON); coreference: schemas; alignment: lines, source TAB target."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=2, help="How many prompts.")]
Size = Annotated[int, typer.Option("--size", min=1, help="Heads at most.")]
Edges = Annotated[bool, typer.Option("--edges", help="Find out who speaks to whom: a pass for every two heads.")]
Rising = Annotated[
    bool, typer.Option("--over-training", help="induction: the best heads of every checkpoint of a run's folder.")
]
Test = Annotated[Path | None, typer.Option("--test", help="Put this circuit to the test: faithful, complete, minimal?")]


def circuit(
    model: Which,
    preset: Task,
    prompts: Prompts = None,
    limit: Limit = None,
    size: Size = 30,
    to: To = None,
    edges: Edges = False,
    test: Test = None,
    over_training: Rising = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the heads that do a task; or --test a circuit that was saved, on prompts that it was not found on.

    --out circuit.json saves the circuit, .html a page with its picture and all scores, .svg the picture.

    --preset alignment --prompts FILE: lines such as «Tom bought 12 books in Boston.»; --preset coreference --prompts
    FILE: schemas of four lines («The bee landed on the flower because it had pollen.», «it», «The bee,the flower»,
    «the flower») with an empty one between them.
    """
    check_output(out, force=force)
    if over_training and (preset is not Preset.induction or any((test, edges, prompts, to))):
        raise InputError("--over-training: with --preset induction, without --test, --edges, --prompts and --to")
    loaded, tokenizer = open_model(model, blocks=True)

    from cutaway.cli.circuit_presets import PresetOptions, run_preset
    from cutaway.cli.shared.models import tokenizer_for_text

    wishes = PresetOptions(prompts, limit, size, to, edges)
    if over_training:
        from cutaway.cli.circuit_over_training import rise

        rise(model, loaded, tokenizer_for_text(tokenizer, model), wishes, out, as_json=as_json)
        return
    if test is not None:
        if edges:
            raise InputError("--edges is for finding a circuit: leave it out, or leave out --test")
        if out is not None:
            check_output(out, ".json", force=force)
        _test(test, preset.value, loaded, tokenizer_for_text(tokenizer, model), wishes, out, as_json)
        return
    with waiting("looking for heads") as report:
        found = run_preset(preset.value, loaded, tokenizer_for_text(tokenizer, model), wishes, report)
    if as_json:
        print(as_text(_data(found, preset.value, model)), end="")
    if out is not None:
        _save(out, found, preset.value, model)
    elif not as_json:
        _show(found)


def _data(found: "Studied", preset: str, model: Path) -> dict[str, Any]:
    curves = {name: {str(size): kept for size, kept in curve.items()} for name, curve in found.curves.items()}
    scores = {name: one.to_dict() for name, one in found.scores.items()}
    return {"model": str(model), "preset": preset, "circuit": found.circuit.to_dict(), "scores": scores,
            "curves": curves, **found.data}  # fmt: skip


def _save(out: Path, found: "Studied", preset: str, model: Path) -> None:
    from cutaway.pictures import Lines, Picture
    from cutaway.pictures.pages import page_of
    from cutaway.pictures.to_picture import to_picture

    if out.suffix.lower() == ".json":
        write_output(out, None, found.circuit.to_dict())
        return
    drawn = to_picture(found.circuit)
    pictures: list[Picture] = [drawn]
    if found.curves:
        sizes = sorted(next(iter(found.curves.values())))
        lines = {name: [curve[size] for size in sizes] for name, curve in found.curves.items()}
        title = "How much of the task so many heads keep"
        pictures.append(Lines(sizes, lines, title=title, x_name="heads", y_name="share of the metric"))
    pictures += [to_picture(one, title=f"Heads: {name.replace('_', ' ')}") for name, one in found.scores.items()]
    lead = " · ".join(f"{what}: {much}" for what, much in found.facts)
    write_output(out, drawn, {}, page_of(f"{model.name}: {preset}", lead, pictures))


def _show(found: "Studied") -> None:
    from rich.text import Text

    from cutaway.cli.shared.tables import chance, grid

    console = screen()
    facts = grid()
    for what, much in found.facts:
        facts.add_row(Text(what, "dim"), Text(much))
    console.print(facts)
    for name, scores in found.scores.items():
        console.print()
        table = grid(name.replace("_", " "))
        for head, score in scores.best(SHOWN):
            mark = "•" if head in found.circuit.nodes else " "
            cells = [minus(f"{score:6.2f}")] if scores.what.startswith("lost") else chance(score, console)
            table.add_row(Text(f"{mark} {head}"), *cells)
        console.print(table)
    if found.curves:
        console.print()
        table = grid(header=True)
        names = list(found.curves)
        for name in ("heads", *(name for one in names for name in (one, *([""] if console.is_terminal else [])))):
            table.add_column(name, justify="right" if name == "heads" else "left")
        for size in found.curves[names[0]]:
            cells = [cell for one in names for cell in chance(found.curves[one][size], console)]
            table.add_row(str(size), *cells)
        console.print(table)
    if found.circuit.edges:
        console.print()
        table = grid("who speaks to whom: what is lost without it")
        for start, end, weight in sorted(found.circuit.edges, key=lambda edge: -abs(edge[2]))[:EDGES]:
            table.add_row(Text(f"  {start}"), Text(f"→ {end}"), Text(minus(f"{weight:+.2f}")))
        console.print(table)
    console.print()
    console.print(
        Text(f"• one of the circuit's {len(found.circuit.nodes)} heads: --out circuit.json keeps them", "dim")
    )


def _test(
    file: Path,
    preset: str,
    model: "Model",
    tokenizer: "Tokenizer",
    wishes: "PresetOptions",
    out: Path | None,
    as_json: bool,
) -> None:
    from rich.text import Text

    from cutaway.cli.circuit_presets import trial_of
    from cutaway.cli.shared.tables import grid
    from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
    from cutaway.inside.progress import stages

    kept = Circuit.load(file, model)
    with waiting("taking heads away") as report:
        first, then, last = stages(report, 4, 1 + 2 * (1 + len(set(kept.roles.values()))), 1 + len(kept.nodes))
        asked = trial_of(preset, model, tokenizer, wishes, first)
        share, gaps = faithfulness(asked, kept), completeness(asked, kept, report=then)
        needed = minimality(asked, kept, report=last)
    same = kept.same_weights(model)
    data = {"circuit": kept.name, "preset": preset, "nodes": len(kept.nodes), "of": len(asked.among)}
    data |= {"same_weights": same, "faithfulness": share, "completeness": gaps.to_dict(), "minimality": needed}
    if as_json:
        print(as_text(data), end="")
    if out is not None:
        write_output(out, None, data)
    elif not as_json:
        console, table = screen(), grid()
        table.add_row(Text("circuit", "dim"), f"{kept.name}, {len(kept.nodes)} of {len(asked.among)} heads")
        table.add_row(Text("faithful", "dim"), minus(f"alone they keep {share:.0%} of the task"))
        told = f"model and circuit differ by {gaps.gap:.0%} without a part (largest of {len(gaps.subsets)} tried)"
        table.add_row(Text("complete", "dim"), told)
        idle = [node for node, loss in needed.items() if loss <= 0]
        said = f"{len(idle)} add{'s' if len(idle) == 1 else ''} nothing: {', '.join(idle[:4])}"
        said = said if idle else "each of its heads adds something"
        table.add_row(Text("minimal", "dim"), Text(said + (" …" if len(idle) > 4 else "")))
        if not same:
            table.add_row(Text("found in", "dim"), "a model with other weights")
        console.print(table)
        most = grid("what is lost without each")
        for node, loss in sorted(needed.items(), key=lambda item: -item[1])[:8]:
            most.add_row(Text(f"  {node}"), Text(minus(f"{loss:+.1%}").rjust(7)))
        console.print()
        console.print(most)
