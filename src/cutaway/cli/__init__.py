"""The command line: one file per command, imported when it is needed.

Exit codes: 0 done · 1 a command found something broken · 2 wrong input, with one line on stderr · 130 Ctrl-C ·
141 the reader of stdout has gone (128 + SIGPIPE).

A new command is a line in SECTIONS and a file with a function of the file's name. `--help` imports every file for its
docstring and options, so a file imports torch, and rooms that do, inside its function. A command of two words is in a
folder named after the first word, which has a line in GROUPS.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cutaway.cli.shared.options import in_options, with_fields
from cutaway.cli.shared.streams import safe_streams, unwritable
from cutaway.errors import CutawayError, InputError

SECTIONS = {  # what `cutaway --help` says → command → file in this folder
    "Use a model": {
        "demo": "demo",
        "models": "models",
        "translate": "translate",
        "generate": "generate",
        "fill": "fill",
        "classify": "classify",
        "embed": "embed",
        "evaluate": "evaluate",
        "serve": "serve",
    },
    "Look inside": {
        "inspect": "inspect",
        "lens": "lens",
        "patch": "patch",
        "circuit": "circuit",
        "describe": "describe",
        "verify": "verify",
    },
    "Train": {
        "train": "train",
        "runs": "runs",
        "plot": "plot",
        "tokenizer show": "tokenizer.show",
        "tokenizer train": "tokenizer.train",
    },
    "What came before": {
        "ngram": "ngram",
        "vectors": "vectors",
        "shannon": "shannon",
        "chomsky": "chomsky",
        "compare": "compare",
    },
    "Files, and this machine": {
        "import": "import_",
        "export": "export",
        "pack": "pack",
        "doctor": "doctor",
    },
}
COMMANDS = {name: file for section in SECTIONS.values() for name, file in section.items()}
HELP = {"help_option_names": ["-h", "--help"]}
MOST, MOST_SEED = 2**53, 2**63 - 1  # larger numbers are not exact, or no integers of torch and NumPy
NO_MEMORY = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")  # in torch's errors
GROUPS = {  # the first of two words → what the commands are for
    "tokenizer": "Train a tokenizer, or show how one splits a text.",
}


class _Lazy(TyperGroup):
    before = ""  # the first word of the commands: "tokenizer " in the group of that name

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names = (name.removeprefix(self.before).split()[0] for name in COMMANDS if name.startswith(self.before))
        self.commands = dict.fromkeys(names)  # type: ignore[assignment]  # names now, commands in get_command

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = self.before + cmd_name
        single = typer.Typer(
            add_completion=False, no_args_is_help=name in GROUPS, rich_markup_mode=None, context_settings=HELP
        )
        if name in GROUPS:
            inner = type("_LazyGroup", (_Lazy,), {"before": f"{name} "})
            single.callback(cls=inner, help=GROUPS[name])(lambda: None)
        elif name in COMMANDS:
            single.command(cmd_name, cls=_Command, context_settings=HELP)(with_fields(_function_of(name)))
        else:
            return None
        return typer.main.get_command(single)


def _function_of(command: str) -> Callable[..., None]:
    file = COMMANDS[command]
    return getattr(import_module(f"cutaway.cli.{file}"), file.rpartition(".")[2])


class _Command(TyperCommand):
    def invoke(self, ctx: Any) -> Any:
        for name, value in ctx.params.items():
            most = MOST_SEED if name == "seed" else MOST
            if isinstance(value, int) and abs(value) > most:
                raise InputError(f"{name}={value} is beyond {most:,}")
        return super().invoke(ctx)


class _LazyCommands(_Lazy):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands by section, each with the first sentence of its help."""
        for title, section in SECTIONS.items():
            helps = {name.split()[0]: GROUPS.get(name.split()[0]) or _function_of(name).__doc__ for name in section}
            sentences = {name: re.split(r"(?<=[.?])\s", cleandoc(text or ""))[0] for name, text in helps.items()}
            with formatter.section(title):
                formatter.write_dl([(name, " ".join(text.split())) for name, text in sentences.items()])

    def main(self, *args: Any, **options: Any) -> Any:
        with safe_streams():
            try:
                try:
                    return super().main(*args, **options)
                finally:
                    sys.stdout.flush()  # here, where an error can still be reported
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
            size = re.search(r"tried to allocate ([\d.]+ ?\w+)", str(error), re.IGNORECASE)
            much = f" for {size[1]}" if size else ""
            print(
                f"error: not enough memory{much}: smaller batches (train.tokens) or shorter texts need less",
                file=sys.stderr,
            )
            raise typer.Exit(2) from None

    def _options(self, ctx: Any) -> set[str]:
        """The options of the invoked command, or of all commands in its group."""
        command: Any = self.get_command(ctx, ctx.invoked_subcommand)
        each: list[Any] = [command]
        if isinstance(command, TyperGroup):
            each = [command.get_command(ctx, name) for name in command.commands]
        return {name for command in each for option in command.params for name in option.opts}


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


app = typer.Typer(
    cls=_LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


def _print_version(flag: bool) -> bool:
    if flag:
        from cutaway import __version__

        print(f"cutaway {__version__}")
        raise typer.Exit
    return flag


@app.callback()
def _cutaway(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="CUTAWAY_DEBUG", help="Show the traceback of errors.")
    ] = False,
) -> None:
    """Train, run and look inside Transformers. Start with: cutaway demo"""


def main() -> None:
    """The `cutaway` command."""
    app(prog_name="cutaway")
