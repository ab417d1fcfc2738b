"""`cutaway doctor`: what this machine can do, and how to fix what it cannot."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.options import Json
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from rich.table import Table

    from cutaway.cli.doctor.row import Row

Quick = Annotated[bool, typer.Option("--quick", help="Leave out what takes seconds: speeds and torch.compile.")]


def doctor(as_json: Json = False, quick: Quick = False) -> None:
    """What this machine can do, and how to fix what it cannot."""
    from cutaway import __version__
    from cutaway.cli.doctor.survey import survey
    from cutaway.pictures.console import Console

    with Console(stderr=True).status("") as spinner:
        found = list(survey(quick, announce=lambda name: spinner.update(f"looking at {name} …")))

    broken = [row.name for _, row in found if row.broken]
    if as_json:
        rows = [{"group": group, **asdict(row)} for group, row in found]
        print(json_text({"version": __version__, "broken": broken, "rows": rows}, 2))
    else:
        console = Console()
        console.print(_table(found))
        console.print(f"\nbroken: {', '.join(broken)}" if broken else "\nCutaway runs here.", style="bold")
    raise typer.Exit(1 if broken else 0)


def _table(found: Iterable[tuple[str, "Row"]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "slow": "yellow", "missing": "magenta"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    shown = ""
    for group, row in found:
        if group != shown:
            if shown:
                table.add_row()
            table.add_row(Text(group, style="bold"))
            shown = group
        text = Text(row.found)
        if row.fix:
            text.append(f"\n→ {row.fix}", style="cyan")
        table.add_row(f"  {row.name}", Text(row.status, style="bold red" if row.broken else styles[row.status]), text)
    return table
