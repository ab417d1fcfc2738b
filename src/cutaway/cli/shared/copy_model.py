"""What `import`, `export` and `pack` share: read a model in any layout, write it in one, and say what it was."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.shared.options import Dtype, locate_model
from cutaway.cli.shared.tables import json_text

Which = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", callback=locate_model, help="A model's folder, file or name, in any layout that is read."
    ),
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")]
Kind = Annotated[Dtype, typer.Option("--dtype", help="Of the weights that are written.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the model that is in the folder.")]
NoTokenizer = Annotated[bool, typer.Option("--no-tokenizer", help="Leave the tokenizer behind.")]


def copy_model(
    source: Path,
    target: Path,
    write: Callable[..., Any],
    *,
    dtype: Dtype,
    no_tokenizer: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Reads the model, writes it with `write(model, new folder, tokenizer)`, and prints what it was.

    Of an engine, `write` returns how far its answers are from ours: 1 is the exit code where that is too far.
    """
    import torch
    from rich.text import Text

    from cutaway.checkpoints import load, tokenizer_of
    from cutaway.checkpoints.output_folder import MODEL
    from cutaway.cli.shared.console import Console
    from cutaway.folders import files_in, replacing_folder

    _check_target(source, target, force)  # before anything is read
    with Console(stderr=True).status("") as spinner:
        spinner.update(Text(f"reading {source} …"))
        model = load(source, dtype=getattr(torch, dtype.value))
        tokenizer = None if no_tokenizer else tokenizer_of(source)
        spinner.update(Text(f"writing {target} …"))
        with replacing_folder(target, MODEL) as fresh:
            agreement = write(model, fresh, tokenizer)
            written = {file.name: file.stat().st_size for file in files_in(fresh)}
    found = {
        "from": str(source),
        "to": str(target),
        "family": model.config.family,
        "task": model.config.task,
        "parameters": model.n_parameters(),
        "dtype": dtype.value if agreement is None else agreement.dtype,
        "vocab_size": None if tokenizer is None else tokenizer.vocab_size,
        "files": written,
    }
    if agreement is not None:
        found["agreement"] = {**dataclasses.asdict(agreement), "holds": agreement.holds}
    print(json_text(found, 2)) if as_json else _report(found, agreement)
    if agreement is not None and not agreement.holds:
        print("error:", agreement, file=sys.stderr)
        raise typer.Exit(1)


def _check_target(source: Path, target: Path, force: bool) -> None:
    from cutaway.checkpoints.output_folder import MODEL
    from cutaway.errors import InputError
    from cutaway.folders import check_folder, files_in

    if files_in(target) and source.exists() and target.samefile(source):
        raise InputError(f"{target} is the model itself: name another folder to write")
    check_folder(target, MODEL, force=force, by="--force", shared=True)


def _report(found: dict[str, Any], agreement: Any) -> None:
    from cutaway.cli.shared.console import Console
    from cutaway.cli.shared.format import human

    console = Console(soft_wrap=True)
    vocab_size, files = found["vocab_size"], found["files"]
    tokenizer = "no tokenizer" if vocab_size is None else f"a tokenizer of {vocab_size:,} tokens"
    console.print(f"read   {found['from']}")
    console.print(f"       {found['family']}, {found['task']}, {found['parameters']:,} parameters; {tokenizer}")
    console.print(f"wrote  {found['to']}")
    sizes = ", ".join(f"{name} {human(size, 'B')}" for name, size in files.items())
    console.print(f"       {found['dtype']}: {sizes}")
    if agreement is not None:
        console.print("\n       ".join([f"tried  {agreement}", *agreement.notes]))
