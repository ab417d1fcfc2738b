"""`cutaway plot`: the curves of some runs as one picture."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.shared.inside import Force
from cutaway.cli.shared.options import Json
from cutaway.folders import check_file
from cutaway.pictures.terminal_text import json_text


def plot(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Model folders that `cutaway train` made.")],
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("curve.svg"),
    metric: Annotated[str, typer.Option(help="What to draw: loss, accuracy, bits_per_byte, …")] = "loss",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw the loss, or a score, of some runs by step: one SVG file that needs nothing else."""
    from cutaway.files import replacing
    from cutaway.training.run_curves import plot_runs, read_run

    check_file(out, force=force)
    picture = plot_runs([read_run(folder) for folder in folders], metric)
    with replacing(out) as temporary:
        temporary.write_text(picture, encoding="utf-8")
    if as_json:
        print(json_text({"out": str(out), "metric": metric, "runs": [str(folder) for folder in folders]}))
    else:
        print(out)
