"""`cutaway verify`: measures whether a model gives the same results in every way of running it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.bundled import HERE
from cutaway.cli.shared.options import Device, Json, On, locate_model
from cutaway.errors import InputError
from cutaway.pictures.terminal_tables import grid, stdout
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.certificate import Certificate, Entry

Where = Annotated[Path, typer.Argument(metavar="MODEL", callback=locate_model, help="A model's folder, file or name.")]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out torch.compile, which takes longest.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The certificate to write. Default: certificate.json next to the weights; none for a bundled model.",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Only read the certificate, and see if it is stale.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random inputs.")]
Length = Annotated[
    int | None,
    typer.Option(
        "--length",
        help="Tokens of the longest row. Default: the model's maximum, or as many as one pass reads in seconds.",
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
    """Check that a model gives the same results in every way of running it.

    Alone or in a batch, with padding on the left or the right, with or without the KV cache, compiled, exported and so
    on. Prints a table of these laws and writes it as the model's certificate. Exit code 1 if a law fails.
    """
    from cutaway.certificate import certificate_path, read_certificate

    path = certificate_path(model) if out is None else out
    changed: list[str] = []
    if check:
        certificate = read_certificate(path)
        if device is not Device.auto and device.value != certificate.machine.get("device"):
            raise InputError(
                f"{path} was not measured on {device.value}: run the command without --check to measure it there"
            )
        changed = certificate.changed(model)
    else:
        _check_path(path)
        certificate = _measure(model, quick, seed, length, device)
        if out is None and model.resolve().is_relative_to(HERE):
            print("the bundled certificate is kept; use --out FILE to write this one", file=sys.stderr)
        else:
            certificate.write(path)
    if as_json:
        print(json_text({**certificate.to_dict(), "file": str(path), "stale": changed}, 2))
    else:
        _print(model, certificate, path, changed)
    raise typer.Exit(0 if certificate.passed and not changed else 1)


def _check_path(path: Path) -> None:
    """Refuses to overwrite a file that is not a certificate."""
    from cutaway.errors import CheckpointError
    from cutaway.files import read_json

    if not path.is_file():
        return
    try:
        ours = {"schema", "entries"} <= read_json(path).keys()
    except CheckpointError:
        ours = False
    if not ours:
        raise InputError(f"{path} exists and is not a certificate: name another file with --out, or remove it")


def _measure(model: Path, quick: bool, seed: int, length: int | None, device: Device) -> "Certificate":
    """Measured on a GPU if there is one, as in every command that runs a model."""
    from cutaway.pictures.console import Console

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


def _print(model: Path, certificate: "Certificate", path: Path, changed: list[str]) -> None:
    from rich.text import Text

    console, reasons = stdout(), list(dict.fromkeys(entry.why for entry in certificate.entries if entry.why))
    about = [certificate.family, certificate.task, f"{certificate.parameters:,} parameters"]
    about.append(f"{certificate.precision} on {certificate.machine.get('device', '?')}")
    console.print(Text.assemble((str(model), "bold"), *(f" · {word}" for word in about)))
    console.print()
    console.print(_table(certificate.entries, reasons))
    console.print()
    if reasons:
        console.print(_footnotes(reasons))
        console.print()
    console.print(_count(certificate.entries))
    inputs = next((entry.inputs for entry in certificate.entries if entry.law == "batch = single"), "")
    if (certificate.length or 0) < (certificate.max_len or 0):
        inputs += f" of the {certificate.max_len:,} tokens that the model can read (--length measures more)"
    versions = [f"{name} {version}" for name, version in certificate.versions.items()]
    details = [
        inputs,
        f"seed {certificate.seed}",
        *versions,
        certificate.machine.get("processor", ""),
        certificate.date,
    ]
    console.print(Text(" · ".join(filter(None, details)), "dim"))
    console.print(Text(str(path), "dim"), soft_wrap=True)  # on one line, so that it can be copied
    if changed:
        message = f"stale: {', '.join(changed)} changed since; measure again with `cutaway verify {model}`"
        console.print(Text(message, "bold red"), soft_wrap=True)


def _table(entries: "list[Entry]", reasons: list[str]) -> Any:
    from rich.text import Text

    table = grid(header=True)
    table.add_column("law")
    table.add_column("verdict", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("")
    for entry in entries:
        value = "" if entry.value is None else f"{entry.value:.2g}"
        note = f"({reasons.index(entry.why) + 1})" if entry.why else _bound(entry)
        table.add_row(entry.law, Text(entry.verdict, STYLES[entry.verdict]), value, Text(note, "dim"))
    return table


def _footnotes(reasons: list[str]) -> Any:
    """The reasons why laws have no value, each once."""
    from rich.text import Text

    notes = grid()
    notes.add_column(width=len(f"({len(reasons)})"))
    notes.add_column(overflow="fold")
    for number, reason in enumerate(reasons, 1):
        notes.add_row(Text(f"({number})", "dim"), Text(reason, "dim"))
    return notes


def _bound(entry: "Entry") -> str:
    """What the value is compared with."""
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
