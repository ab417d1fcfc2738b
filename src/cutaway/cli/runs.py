"""`cutaway runs`: what was trained here, and how it went."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.options import Json


def runs(
    folder: Annotated[Path, typer.Argument(help="Look for runs in this folder and beneath it.")] = Path(),
    as_json: Json = False,
) -> None:
    """List training runs: how far they are, their losses, their speed."""
    from cutaway.errors import InputError
    from cutaway.training.curves import find_runs

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    found = find_runs(folder)
    rows = []
    for run in found:
        best = run.best()
        rows.append({
            "folder": str(run.path), "name": run.start.get("name"), "state": run.state,
            "parameters": run.start.get("parameters"), "step": run.last.get("step", 0), "steps": run.start.get("steps"),
            "loss": run.last.get("loss"), "best_loss": best and best[1], "best_step": best and best[0],
            "tokens_per_second": run.last.get("tokens_per_second"), "seconds": run.last.get("seconds"),
        })  # fmt: skip
    if as_json:
        import json

        print(json.dumps(rows))
        return
    if not rows:
        print(f"no runs in {folder}: `cutaway train RECIPE.toml --out DIR` makes one")
        return
    _show(rows)


def _show(rows: list[dict]) -> None:  # type: ignore[type-arg]
    from rich.console import Console
    from rich.table import Table

    from cutaway.cli.train import amount

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("folder", "state"):
        table.add_column(name, overflow="fold")
    for name in ("parameters", "step", "loss", "best valid", "tok/s", "time"):
        table.add_column(name, justify="right")
    for row in rows:
        best = f"{row['best_loss']:.4f} at {row['best_step']:,}" if row["best_loss"] is not None else "–"
        table.add_row(
            row["folder"],
            row["state"],
            amount(float(row["parameters"] or 0)),
            f"{row['step']:,}/{row['steps'] or 0:,}",
            "–" if row["loss"] is None else f"{float(row['loss']):.4f}",
            best,
            "–" if row["tokens_per_second"] is None else amount(row["tokens_per_second"]),
            "–" if row["seconds"] is None else f"{row['seconds']:,.0f} s",
        )
    Console(highlight=False).print(table)
