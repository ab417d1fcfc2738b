"""`cutaway verify`: the certificate. Measures the laws that a model has to keep, and says which it does."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.options import Json

if TYPE_CHECKING:
    from cutaway.certificate import Certificate, Entry

Where = Annotated[Path, typer.Argument(metavar="MODEL", help="A model's folder or file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out what takes long: compiling.")]
Out = Annotated[Path | None, typer.Option("--out", help="The file to write; else certificate.json beside the weights.")]
Check = Annotated[bool, typer.Option("--check", help="Measure nothing: read the certificate, and see if it is stale.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the random inputs.")]

STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim", "not measured": "yellow"}


def verify(
    model: Where,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Does this model keep the laws? Batch = single, cached = uncached, export = native … Exit code 1 if one fails."""
    from cutaway.certificate import certificate_path, read_certificate

    path = certificate_path(model) if out is None else out
    changed: list[str] = []
    if check:
        certificate = read_certificate(path)
        changed = certificate.changed(model)
    else:
        certificate = _measured(model, quick, seed)
        certificate.write(path)
    if as_json:
        print(json.dumps({**certificate.to_dict(), "file": str(path), "stale": changed}, indent=2, ensure_ascii=False))
    else:
        _show(model, certificate, path, changed)
    raise typer.Exit(0 if certificate.passed and not changed else 1)


def _measured(model: Path, quick: bool, seed: int) -> "Certificate":
    from rich.console import Console

    with Console(stderr=True).status("reading the model …") as spinner:
        from cutaway.certificate import verify as measure

        return measure(model, seed=seed, quick=quick, report=lambda law: spinner.update(f"{law} …"))


def _show(model: Path, certificate: "Certificate", path: Path, changed: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    about = f": {certificate.family}, {certificate.task}, {certificate.parameters:,} parameters"
    console.print(Text.assemble((str(model), "bold"), about), soft_wrap=True)
    console.print(_table(certificate.entries))
    inputs = next((entry.inputs for entry in certificate.entries if entry.inputs), "")
    versions = " · ".join(f"{name} {version}" for name, version in certificate.versions.items())
    told = [inputs, f"seed {certificate.seed}", versions, certificate.machine.get("processor", ""), certificate.date]
    console.print(Text(" · ".join(filter(None, told)), "dim"), soft_wrap=True)
    console.print(Text(str(path), "dim"), soft_wrap=True)
    failed = [entry.law for entry in certificate.entries if entry.verdict == "failed"]
    if failed:
        console.print(Text(f"failed: {', '.join(failed)}", "bold red"), soft_wrap=True)
    if changed:
        said = f"stale: {', '.join(changed)} changed since; measure again with `cutaway verify {model}`"
        console.print(Text(said, "bold red"), soft_wrap=True)


def _table(entries: "list[Entry]") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("law", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("found", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for entry in entries:
        note = entry.why or ("" if entry.agreement is None else f"the likeliest agrees in {entry.agreement:.1%}")
        table.add_row(
            entry.law,
            Text(entry.verdict, STYLES[entry.verdict]),
            "" if entry.value is None else f"{entry.value:.2g}",
            "" if entry.tolerance is None else f"{entry.tolerance:.2g}",
            Text(note, "dim"),
        )
    return table
