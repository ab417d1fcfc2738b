"""`cutaway circuit`: which heads do a task, as data that can be saved and tested."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.shared.inside import Force, Out, Which, check_output, open_model, print_report, waiting, warn
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.inside.reports.options import CircuitOptions


class Preset(StrEnum):
    """The task."""

    ioi = "ioi"
    induction = "induction"
    coreference = "coreference"
    alignment = "alignment"


Task = Annotated[Preset, typer.Option("--preset", help="Mary and John; repeated tokens; whom «it» means; copies.")]
OverTraining = Annotated[
    bool, typer.Option("--over-training", help="induction: the best heads of every checkpoint of a run's folder.")
]
Test = Annotated[Path | None, typer.Option("--test", help="Test this circuit: is it faithful, complete, minimal?")]


def circuit(
    model: Which,
    preset: Task,
    *,
    options: CircuitOptions,
    test: Test = None,
    over_training: OverTraining = False,
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
    if over_training and (preset is not Preset.induction or any((test, options.edges, options.prompts, options.to))):
        raise InputError("--over-training: with --preset induction, without --test, --edges, --prompts and --to")
    loaded, found = open_model(model, blocks=True)

    from cutaway.cli.shared.models import tokenizer_for_text
    from cutaway.inside.circuits.circuit import Circuit
    from cutaway.inside.presets.table import check_circuit, circuit
    from cutaway.inside.reports.induction_report import induction_report
    from cutaway.inside.reports.report import Report

    tokenizer = tokenizer_for_text(found, model)
    if over_training:
        with waiting("reading checkpoints"):
            report: Report = induction_report(loaded, tokenizer, model, options=options)
    elif test is not None:
        if options.edges:
            raise InputError("--edges is for finding a circuit: leave it out, or leave out --test")
        check_output(out, ".json", force=force)
        saved = Circuit.load(test, loaded)
        with waiting("taking heads away") as progress:
            report = check_circuit(
                loaded, tokenizer, saved, preset.value, progress=progress, warn=warn, options=options
            )
    else:
        with waiting("looking for heads") as progress:
            report = circuit(
                loaded, tokenizer, preset.value, progress=progress, warn=warn, name=str(model), options=options
            )
    print_report(report, out, as_json=as_json)
