"""The command line: one file per command, imported when it is asked for.

Exit codes: 0 done · 1 a command found something broken · 2 wrong input, said in one line on stderr · 130 Ctrl-C ·
141 whoever read stdout has gone, as other programs say it to the shell.

A new command is a line in COMMANDS and a file whose function bears the file's name. `--help` imports every file, to
read its docstring and options, so a file imports torch, and rooms that do, inside its function. A command of two words
stands in a folder named as the first, and the first has a line in GROUPS.
"""

import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cutaway.cli.shared.options import with_fields
from cutaway.cli.shared.streams import safe_streams, unwritable
from cutaway.cli.shared.wording import in_options
from cutaway.errors import CutawayError, InputError

COMMANDS = {  # command → file in this folder
    "chomsky": "chomsky",
    "circuit": "circuit",
    "classify": "classify",
    "compare": "compare",
    "demo": "demo",
    "describe": "describe",
    "doctor": "doctor",
    "embed": "embed",
    "evaluate": "evaluate",
    "export": "export",
    "fill": "fill",
    "generate": "generate",
    "import": "import_",
    "inspect": "inspect",
    "lens": "lens",
    "models": "models",
    "ngram": "ngram",
    "pack": "pack",
    "patch": "patch",
    "plot": "plot",
    "runs": "runs",
    "shannon": "shannon",
    "tokenizer show": "tokenizer.show",
    "tokenizer train": "tokenizer.train",
    "train": "train",
    "translate": "translate",
    "vectors": "vectors",
    "verify": "verify",
}
MOST, MOST_SEED = 2**53, 2**63 - 1  # larger numbers mean nothing, and are no integers to torch and NumPy
NO_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")  # as torch says it
GROUPS = {  # the first of two words → what the commands are for
    "tokenizer": "Train a tokenizer; see how one cuts a text.",
}


class _Lazy(TyperGroup):
    before = ""  # of the commands' names: "tokenizer " in the group of that name

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names = (name.removeprefix(self.before).split()[0] for name in COMMANDS if name.startswith(self.before))
        self.commands = dict.fromkeys(names)  # type: ignore[assignment]  # names now, commands in get_command

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = self.before + cmd_name
        single = typer.Typer(add_completion=False, no_args_is_help=name in GROUPS, rich_markup_mode=None)
        if name in GROUPS:
            inner = type("_LazyGroup", (_Lazy,), {"before": f"{name} "})
            single.callback(cls=inner, help=GROUPS[name])(lambda: None)
        elif name in COMMANDS:
            file = COMMANDS[name]
            function = getattr(import_module(f"cutaway.cli.{file}"), file.rpartition(".")[2])
            single.command(cmd_name, cls=_Command)(with_fields(function))
        else:
            return None
        return typer.main.get_command(single)


class _Command(TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        for name, value in ctx.params.items():
            most = MOST_SEED if name == "seed" else MOST
            if isinstance(value, int) and abs(value) > most:
                raise InputError(f"{name}={value} is beyond {most:,}")
        return super().invoke(ctx)


class _LazyCommands(_Lazy):
    def main(self, *args: Any, **options: Any) -> Any:
        with safe_streams():
            try:
                try:
                    return super().main(*args, **options)
                finally:
                    sys.stdout.flush()  # here, where what goes wrong can be said
            except OSError as error:
                code = unwritable(error)
                if code is None:
                    raise
                sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CutawayError as error:
            if ctx.params["debug"]:
                raise
            print("error:", in_options(" ".join(str(error).split()), self._options(ctx)), file=sys.stderr)
            raise typer.Exit(2) from None
        except OSError as error:
            code = unwritable(error)
            if ctx.params["debug"] or (code is None and error.filename is None):
                raise
            if code is None:
                print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            raise typer.Exit(2 if code is None else code) from None
        except (RuntimeError, MemoryError) as error:
            if ctx.params["debug"] or not _out_of_memory(error):
                raise
            asked = re.search(r"tried to allocate ([\d.]+ ?\w+)", str(error), re.IGNORECASE)
            much = f" for {asked[1]}" if asked else ""
            print(
                f"error: not enough memory{much}: smaller batches (train.tokens) or shorter texts need less",
                file=sys.stderr,
            )
            raise typer.Exit(2) from None

    def _options(self, ctx: Any) -> set[str]:
        """Those of the command that was asked for, or of all in its group."""
        asked: Any = self.get_command(ctx, ctx.invoked_subcommand)
        each: list[Any] = [asked]
        if isinstance(asked, TyperGroup):
            each = [asked.get_command(ctx, name) for name in asked.commands]
        return {name for command in each for option in command.params for name in option.opts}


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(said in str(error) for said in NO_MEMORY)


app = typer.Typer(
    cls=_LazyCommands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from cutaway import __version__

        print(f"cutaway {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _cutaway(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="CUTAWAY_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """The Transformer, whole, and with its cover off."""


def main() -> None:
    """The `cutaway` command."""
    app(prog_name="cutaway")
