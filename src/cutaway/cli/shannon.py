"""`cutaway shannon`: Shannon's experiment. Guess a hidden text letter by letter, and compare yourself with models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.before.options import GameOptions, Letters
from cutaway.cli.shared.inside import (
    Force,
    Out,
    as_text,
    check_output,
    draw_picture,
    numbers_in_option,
    screen,
    waiting,
    write_output,
)
from cutaway.cli.shared.options import Json, locate_model
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.before.shannon.game import Game, Player
    from cutaway.before.shannon.players import Curve

KNOWN, SAMPLES = "0,1,2,3,4,6,8,14,32,64,99", 100
SAVED = Path("shannon.json")
FEW = 50  # guessed letters, below which the bounds are unreliable


Text = Annotated[Path, typer.Argument(metavar="TEXT", help="Text in UTF-8, plain or packed with gzip or xz.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", callback=locate_model, help="A language model that guesses too, such as books."),
]
Train = Annotated[
    list[Path] | None,
    typer.Option(
        "--train", metavar="FILE", help="Text for the n-grams to learn from; by default the first 90% of TEXT."
    ),
]


def shannon(
    text: Text,
    options: GameOptions,
    model: Model = None,
    train: Train = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Estimate the entropy of a text, letter by letter: from your guesses, from n-grams and from a model.

    cutaway shannon novel.txt --play, then cutaway shannon novel.txt --game shannon.json --model books --out curve.svg
    """
    check_output(out, force=force)
    path = (options.game or SAVED) if options.playing else options.game
    if path is not None and not options.playing and not path.exists():
        raise InputError(f"{path} does not exist: play first, with --play --game {path}")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"--game {path}: there is no folder {path.parent}")
    more = _read(train) if train else None
    game = _game(text, more, options, path)
    if options.playing:
        assert path is not None
        curves = [_person(_play(game, path, options.answers, quiet=as_json))]
    else:
        curves = _curves(game, model, more, path)
        if not _has_guesses(curves):
            asked_for = ", ".join(map(str, game.known))
            raise InputError(f"nobody has guessed with {asked_for} letters known: give a --model, or a smaller --known")
    _print(curves, game, text, out, as_json)


def _read(files: list[Path]) -> str:
    from cutaway.before.units import text_pieces

    return "".join(piece.text for piece in text_pieces(files))


def _game(text: Path, more: str | None, options: GameOptions, path: Path | None) -> "Game":
    """The game with these options; those that are not given are the saved game's, else the defaults."""
    from cutaway.before.shannon.game import Game, read_game

    saved = read_game(path) if path is not None and path.exists() else {}
    usual: dict[str, Any] = {"known": numbers_in_option(KNOWN), "samples": SAMPLES, "seed": 0}
    chosen = {"known": numbers_in_option(options.known, "--known"), "samples": options.samples, "seed": options.seed}
    terms: dict[str, Any] = {
        name: saved.get(name, usual[name]) if value is None else value for name, value in chosen.items()
    }
    whole = saved["first"] == 0 if "first" in saved else more is not None
    read = _read([text])
    try:
        return Game.of(read, all_letters=options.letters is Letters.all, whole=whole, more=more or "", **terms)
    except InputError as error:
        raise InputError(f"{text}: {error}") from None


def _play(game: "Game", path: Path, answers: Path | None, *, quiet: bool) -> "Player":
    """Plays the rest of the game; Ctrl-C keeps the guesses, as Esc does."""
    from cutaway.before.shannon.game import Player
    from cutaway.cli.shannon_terminal import play_on
    from cutaway.pictures.console import Console

    console = Console(stderr=quiet, soft_wrap=True)
    player, n = Player(game, path), len(game.rounds)
    if player.round is None:
        console.print(f"{path}: finished, {n} of {n} letters; another --game starts a new one")
        return player
    if answers is not None:
        _check_answers(answers, game)
    try:
        return play_on(game, path, answers, quiet=quiet)
    except UnicodeDecodeError:
        raise InputError(f"--answers {answers}: stdin is not text in UTF-8; give the letters to guess") from None
    except KeyboardInterrupt:
        kept = f", saved in {path}" if path.exists() else ""
        console.print(f"\n{len(Player(game, path).guesses)} of {n} letters{kept}")
        raise typer.Exit(130) from None


def _check_answers(path: Path, game: "Game") -> None:
    """Refuses a file without any letter of the game. A pipe is not checked, since it can be read only once."""
    from cutaway.before.shannon.bounds import LETTERS

    if not path.is_file():
        return
    try:
        keys = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"--answers {path} is not text in UTF-8: give a file with the letters to guess") from None
    except OSError as error:
        raise InputError(f"--answers {path} cannot be read: {error.strerror}") from None
    if not {*(keys.lower() if game.letters == LETTERS else keys)} & {*game.letters}:
        raise InputError(
            f"--answers {path} has none of the letters to guess: write them into it, the first guess first"
        )


def _person(player: "Player") -> "Curve":
    from cutaway.before.shannon.players import person_curve

    return person_curve(player)


def _curves(game: "Game", model: Path | None, more: str | None, path: Path | None) -> "list[Curve]":
    from cutaway.before.shannon.bounds import LETTERS, reduced
    from cutaway.before.shannon.game import Player
    from cutaway.before.shannon.players import counted_curve, model_curve, ngram_curve, reader_curve

    curves = [] if path is None else [_person(Player(game, path))]
    with waiting("counting") as progress:
        other = reduced(more) if more is not None and game.letters == LETTERS else more
        curves += [counted_curve(game), ngram_curve(game, other, progress)]
    if model is not None:
        from cutaway.cli.shared.inside import open_model
        from cutaway.cli.shared.models import tokenizer_for_text

        loaded, tokenizer = open_model(model)
        with waiting(f"{model.name} guesses") as progress:
            curves.append(model_curve(game, loaded, tokenizer_for_text(tokenizer, model), model.name, progress))
    return [*curves, reader_curve(game)] if game.letters == LETTERS else curves


def _has_guesses(curves: "list[Curve]") -> bool:
    """Whether anybody has guessed a letter."""
    return any(one.n for curve in curves for one in curve.bounds)


def _print(curves: "list[Curve]", game: "Game", text: Path, out: Path | None, as_json: bool) -> None:
    from cutaway.before.shannon.players import picture

    found: dict[str, Any] = {
        "text": str(text),
        "letters": len(game.letters),
        "length": len(game.text),
        "guessed_from": game.first,
        "known": list(game.known),
        "samples": game.samples,
        "seed": game.seed,
        "players": [curve.to_dict() for curve in curves],
    }
    there = _has_guesses(curves)
    if out is not None:
        if not there:
            raise InputError("no letter has been guessed yet: there is nothing to draw")
        write_output(out, picture(curves, f"What a letter of {text.name} tells"), found)
    if as_json:
        print(as_text(found), end="")
    elif there:
        _show(curves, game, text)


def _show(curves: "list[Curve]", game: "Game", text: Path) -> None:
    from dataclasses import replace
    from math import isnan

    from rich.text import Text as Rich

    from cutaway.before.shannon.players import BITS, picture

    console = screen()
    places = len(game.text) - game.first
    said = f"{text.name}: {len(game.text):,} letters of {len(game.letters)} kind{'s' * (len(game.letters) > 1)}"
    guessed = f"guessed are some of the last {places:,}" if places > 1 else "guessed is the last"
    console.print(Rich(f"{said}; {guessed}"), soft_wrap=True)
    console.print(_table(curves, game.known))
    console.print(Rich("bits for a letter; ≥ and ≤ are Shannon's bounds, from the guesses alone", "dim"))
    few = [one.n for curve in curves for one in curve.bounds if 0 < one.n < FEW]
    if len(game.asked) > len(game.known):
        lost = ", ".join(str(n) for n in game.asked if n not in game.known)
        console.print(Rich(f"Left out, for the text is too short: {lost} letters known.", "yellow"), soft_wrap=True)
    if few:
        least = "1 letter" if min(few) == 1 else f"{min(few)} letters"
        console.print(Rich(f"As few as {least} for a point: from so few, bounds are too low.", "yellow"))
    drawn = replace(picture(curves, "Entropy"), y_name=BITS)  # letters show no bands
    if len(game.known) > 1 and len({value for line in drawn.lines.values() for value in line if not isnan(value)}) > 1:
        console.print()
        draw_picture(console, drawn)
        if any(curve.drawn_as in drawn.lines and curve.drawn_as != curve.name for curve in curves):
            console.print(Rich("middle: halfway between the bounds, not measured", "dim"))


def _table(curves: "list[Curve]", known: tuple[int, ...]) -> Any:
    from math import isnan

    from cutaway.pictures.terminal_tables import grid

    def cells(curve: "Curve", of: str) -> list[str]:
        each = curve.bits if of == "bits" else [getattr(one, of) for one in curve.bounds]
        return ["" if isnan(value) else f"{value:.2f}" for value in each]

    table = grid("", header=True)
    for title in ("letters known", *map(str, known)):
        table.add_column(title, justify="right" if title.isdigit() else "left")
    for curve in curves:
        for of, mark in {"bits": "", "lower": " ≥", "upper": " ≤"}.items():
            if any(row := cells(curve, of)):
                table.add_row(curve.name + mark, *row)
    return table
