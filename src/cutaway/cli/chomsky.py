"""`cutaway chomsky`: which formal languages small models learn, and whether they generalise to longer words."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.before.options import LanguageOptions
from cutaway.cli.shared.inside import Force, Out, as_text, check_output, learning, screen, write_output
from cutaway.cli.shared.options import Json

if TYPE_CHECKING:
    from cutaway.before.chomsky.experiment import LanguageResults

Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        help="local, parity, dyck-1, dyck-2, mirror, shuffle-2, abc, copy or crossed; by default all.",
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="The positions of a decoder (none, sinusoidal, learned, rotary, relative), or lstm; by default all.",
    ),
]
Examples = Annotated[int | None, typer.Option("--examples", min=1, help="Only show this many words of each language.")]


def chomsky(
    options: LanguageOptions,
    language: Languages = None,
    model: Models = None,
    examples: Examples = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train small models on short words of formal languages, and test them on longer ones.

    All languages with all models take some minutes; --language dyck-2 --model rotary takes seconds.
    """
    check_output(out, force=force)
    from cutaway.before.chomsky.languages import LANGUAGES
    from cutaway.before.chomsky.network import MODELS

    languages = list(dict.fromkeys(language or LANGUAGES))
    if examples is not None:
        _show_words(languages, options.length, examples, options.seed, as_json)
        return
    from cutaway.before.chomsky.experiment import run_experiment

    models = list(dict.fromkeys(model or MODELS))
    done: list[LanguageResults] = []
    interrupted = False
    try:
        with learning() as progress:
            run_experiment(languages, models, options=options, progress=progress, on_result=done.append)
    except KeyboardInterrupt:
        interrupted = True
        print(f"interrupted: {len(done)} of {len(languages) * len(models)} models done", file=sys.stderr)
    if done:
        found = done[-1]
        if out is not None:
            write_output(out, found.picture(), found.to_dict())
        print(as_text(found.to_dict()), end="") if as_json else _show(found)
    if interrupted:
        raise typer.Exit(130)


def _show_words(names: list[str], length: int, n: int, seed: int, as_json: bool) -> None:
    from cutaway.before.chomsky.languages import draw_words, language_named

    found = {name: draw_words(language_named(name), 1, length, n, seed) for name in names}
    if as_json:
        print(as_text(found), end="")
        return
    for name, some in found.items():
        print(f"{name:10s} {language_named(name).kind:26s} {'  '.join(some)}")


def _show(found: "LanguageResults") -> None:
    from rich.text import Text

    from cutaway.pictures.terminal_tables import grid

    console = screen()
    models = list(next(iter(found.shares.values())))
    console.print(Text(f"% of words right by their length; learnt from at most {found.longest} symbols", "bold"))
    table = grid("", header=True)
    for title in ("", "length", *models):
        table.add_column(title, justify="right" if title else "left")
    for language, shares in found.shares.items():
        for i, (low, high) in enumerate(found.ranges):
            name = language if i == 0 else ""
            cells = (f"{100 * shares[model][i]:.0f}" if model in shares else "" for model in models)
            table.add_row(name, f"{low}–{high}", *cells)
    console.print(table)
    all_steps = [steps for each in found.steps.values() for steps in each.values()]
    steps = f"{min(all_steps)}" if min(all_steps) == max(all_steps) else f"{min(all_steps)} to {max(all_steps)}"
    console.print(Text(f"{steps} step{'' if steps == '1' else 's'} for each model, {found.seconds:.0f} s", "dim"))
