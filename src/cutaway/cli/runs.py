"""`cutaway runs`: what was trained here, and how it went."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_text import json_text


def runs(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[FOLDER…]", help="Look for runs here and beneath.", show_default=".")
    ] = None,
    as_json: Json = False,
) -> None:
    """List training runs: how far they are, their losses, their speed."""
    from cutaway.errors import InputError
    from cutaway.training.run_curves import find_runs

    folders = folders or [Path()]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
    found = {run.path: run for folder in folders for run in find_runs(folder) if run.steps}
    rows = []
    for run in found.values():
        best = run.best()
        rows.append({
            "folder": str(run.path), "name": run.start.get("name"), "state": run.state,
            "parameters": run.start.get("parameters"), "step": run.last.get("step", 0), "steps": run.start.get("steps"),
            "loss": run.last.get("loss"), "best_loss": best and best[1], "best_step": best and best[0],
            "tokens_per_second": run.last.get("tokens_per_second"), "seconds": run.last.get("seconds"),
            "unit": run.start.get("unit") or "tokens",
        })  # fmt: skip
    if as_json:
        print(json_text(rows))
        return
    if not rows:
        places = ", ".join(map(str, folders))
        print(f"no runs in {places} that made a step: `cutaway train RECIPE.toml --out DIR` makes one")
        return
    _show(rows)


def _show(rows: list[dict]) -> None:  # type: ignore[type-arg]
    from rich.table import Table

    from cutaway.cli.train import SPEED, amount, duration
    from cutaway.pictures.console import Console

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("folder", overflow="fold", min_width=12)
    table.add_column("state")
    for name in ("size", "step", "loss", "best", "speed", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        speed, unit = row["tokens_per_second"], SPEED.get(row["unit"], row["unit"])
        table.add_row(
            row["folder"],
            row["state"],
            amount(float(row["parameters"] or 0)),
            f"{row['step']:,}/{row['steps'] or 0:,}",
            _loss(row["loss"]),
            _loss(row["best_loss"]),
            "–" if speed is None else f"{amount(speed)} {unit}",
            "–" if row["seconds"] is None else duration(row["seconds"]),
        )
    Console().print(table)
    print("loss: of the last step that was logged; best: the lowest validation loss")


def _loss(value: float | str | None) -> str:
    return "–" if value is None else f"{float(value):.4g}"
