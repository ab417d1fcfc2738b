"""What `import`, `export` and `pack` share: read a model in one format, write it in another, and report."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.cli.shared.options import Dtype, locate_model
from cutaway.pictures.terminal_text import json_text

Which = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL", callback=locate_model, help="A model's folder, file or name, in any format that Cutaway reads."
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
    """Reads the model, writes it with `write(model, new folder, tokenizer)`, and prints both.

    The exit code is 1 if the outputs of what was written are too far from the model's.
    """
    import torch
    from rich.text import Text

    from cutaway.checkpoints.convert import convert
    from cutaway.pictures.console import Console

    with Console(stderr=True).status("") as spinner:
        model, own, files, agreement = convert(
            source,
            target,
            write,
            dtype=getattr(torch, dtype.value),
            tokenizer=not no_tokenizer,
            force=force,
            force_option="--force",
            progress=lambda message: spinner.update(Text(message)),
        )
    found = {
        "from": str(source),
        "to": str(target),
        "family": model.config.family,
        "task": model.config.task,
        "parameters": model.n_parameters(),
        "dtype": dtype.value if agreement is None else agreement.dtype,
        "vocab_size": None if own is None else own.vocab_size,
        "files": files,
    }
    if agreement is not None:
        found["agreement"] = {**dataclasses.asdict(agreement), "holds": agreement.holds}
    print(json_text(found, 2)) if as_json else _report(found, agreement)
    if agreement is not None and not agreement.holds:
        print("error:", agreement, file=sys.stderr)
        raise typer.Exit(1)


def _report(found: dict[str, Any], agreement: Any) -> None:
    from cutaway.pictures.console import Console
    from cutaway.pictures.terminal_text import human

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
