"""`cutaway verify`: the certificate. Measures the laws that a model has to keep, and says which it does."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.bundled import HERE
from cutaway.cli.shared.options import Device, Json, On, locate_model
from cutaway.cli.shared.tables import grid, json_text, stdout
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.certificate import Certificate, Entry

Where = Annotated[Path, typer.Argument(metavar="MODEL", callback=locate_model, help="A model's folder, file or name.")]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out what takes long: compiling.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="The file to write; else certificate.json beside the weights; of a bundled model none."),
]
Check = Annotated[bool, typer.Option("--check", help="Measure nothing: read the certificate, and see if it is stale.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the random inputs.")]
Length = Annotated[
    int | None,
    typer.Option(
        "--length", help="Tokens of the longest row; else all that the model reads, or as many as take seconds."
    ),
]

STYLES = {
    "passed": "green",
    "failed": "bold red",
    "error": "bold red",
    "not applicable": "dim",
    "not measured": "yellow",
}


def verify(
    model: Where,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seed: Seed = 0,
    length: Length = None,
    device: On = Device.auto,
    as_json: Json = False,
) -> None:
    """Does this model keep the laws? Batch = single, cached = uncached, export = native … Exit code 1 if not."""
    from cutaway.certificate import certificate_path, read_certificate

    path = certificate_path(model) if out is None else out
    changed: list[str] = []
    if check:
        certificate = read_certificate(path)
        if device is not Device.auto and device.value != certificate.machine.get("device"):
            raise InputError(f"{path} was not measured on {device.value}: leave --check out, and it is")
        changed = certificate.changed(model)
    else:
        _check(path)
        certificate = _measured(model, quick, seed, length, device)
        if out is None and model.resolve().is_relative_to(HERE):
            print("the certificate that came along is kept; --out FILE writes this one", file=sys.stderr)
        else:
            certificate.write(path)
    if as_json:
        print(json_text({**certificate.to_dict(), "file": str(path), "stale": changed}, 2))
    else:
        _show(model, certificate, path, changed)
    raise typer.Exit(0 if certificate.passed and not changed else 1)


def _check(path: Path) -> None:
    """An older certificate makes room for a new one, and no other file does."""
    from cutaway.errors import CheckpointError
    from cutaway.files import read_json

    if not path.is_file():
        return
    try:
        ours = {"schema", "entries"} <= read_json(path).keys()
    except CheckpointError:
        ours = False
    if not ours:
        raise InputError(f"{path} is there, and no certificate: name another file with --out, or remove it")


def _measured(model: Path, quick: bool, seed: int, length: int | None, device: Device) -> "Certificate":
    """On the GPU where there is one, like every command that lets a model speak."""
    from cutaway.cli.shared.console import Console

    with Console(stderr=True).status("reading the model …") as spinner:  # on a terminal only
        import torch

        from cutaway.certificate import verify as measure
        from cutaway.certificate.verify import LAWS

        numbers = {law: f"{number} of {len(LAWS)}" for number, law in enumerate(LAWS, 1)}
        has_gpu = torch.cuda.is_available()
        if device is Device.cuda and not has_gpu:
            raise InputError("--device cuda: torch finds no GPU here; see `cutaway doctor`")
        return measure(
            model,
            seed=seed,
            quick=quick,
            length=length,
            device="cuda" if has_gpu and device is not Device.cpu else "cpu",
            report=lambda law: spinner.update(f"{law} … [dim]{numbers[law]}[/]"),
        )


def _show(model: Path, certificate: "Certificate", path: Path, changed: list[str]) -> None:
    from rich.text import Text

    console, reasons = stdout(), list(dict.fromkeys(entry.why for entry in certificate.entries if entry.why))
    about = [certificate.family, certificate.task, f"{certificate.parameters:,} parameters"]
    about.append(f"{certificate.precision} on {certificate.machine.get('device', '?')}")
    console.print(Text.assemble((str(model), "bold"), *(f" · {word}" for word in about)))
    console.print()
    console.print(_table(certificate.entries, reasons))
    console.print()
    if reasons:
        console.print(_below(reasons))
        console.print()
    console.print(_count(certificate.entries))
    inputs = next((entry.inputs for entry in certificate.entries if entry.law == "batch = single"), "")
    if (certificate.length or 0) < (certificate.max_len or 0):
        inputs += f" of the {certificate.max_len:,} tokens that it reads (--length measures more)"
    versions = [f"{name} {version}" for name, version in certificate.versions.items()]
    told = [inputs, f"seed {certificate.seed}", *versions, certificate.machine.get("processor", ""), certificate.date]
    console.print(Text(" · ".join(filter(None, told)), "dim"))
    console.print(Text(str(path), "dim"), soft_wrap=True)  # whole, so that it can be copied
    if changed:
        said = f"stale: {', '.join(changed)} changed since; measure again with `cutaway verify {model}`"
        console.print(Text(said, "bold red"), soft_wrap=True)


def _table(entries: "list[Entry]", reasons: list[str]) -> Any:
    from rich.text import Text

    table = grid(header=True)
    table.add_column("law")
    table.add_column("verdict", no_wrap=True)
    table.add_column("found", justify="right", no_wrap=True)
    table.add_column("")
    for entry in entries:
        value = "" if entry.value is None else f"{entry.value:.2g}"
        note = f"({reasons.index(entry.why) + 1})" if entry.why else _bound(entry)
        table.add_row(entry.law, Text(entry.verdict, STYLES[entry.verdict]), value, Text(note, "dim"))
    return table


def _below(reasons: list[str]) -> Any:
    """Why a law has no number; each reason once, since several laws may share it."""
    from rich.text import Text

    notes = grid()
    notes.add_column(width=len(f"({len(reasons)})"))
    notes.add_column(overflow="fold")
    for number, reason in enumerate(reasons, 1):
        notes.add_row(Text(f"({number})", "dim"), Text(reason, "dim"))
    return notes


def _bound(entry: "Entry") -> str:
    """What the number is held against."""
    if not entry.tolerance or entry.value is None:
        return entry.what
    sign = "≤" if entry.value <= entry.tolerance else ">"
    agreement = "" if entry.agreement is None else f" · {entry.agreement:.1%} agree"
    return f"{sign} {entry.tolerance:.2g}{agreement}"


def _count(entries: "list[Entry]") -> Any:
    from rich.text import Text

    counts = {verdict: sum(entry.verdict == verdict for entry in entries) for verdict in STYLES}
    parts = [Text(f"{n} {verdict}", STYLES[verdict]) for verdict, n in counts.items() if n]
    return Text(" · ").join(parts)
