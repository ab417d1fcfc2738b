"""`cutaway shannon`: Shannon's experiment: guess a hidden text letter by letter, and see what models make of it."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
FEW = 50  # letters of a length, below which the bounds say little


class Letters(StrEnum):
    """What is guessed."""

    shannon = "27"
    all = "all"


Text = Annotated[Path, typer.Argument(metavar="TEXT", help="Text in UTF-8, plain or packed with gzip or xz.")]
Play = Annotated[bool, typer.Option("--play", help="Guess the text yourself. Esc stops; the same command goes on.")]
Saved = Annotated[
    Path | None,
    typer.Option("--game", help=f"Where your guesses are kept, after each one; else {SAVED}. Without --play: shown."),
]
Answers = Annotated[
    Path | None, typer.Option("--answers", help="Play with the letters of a file, - for stdin, instead of the keys.")
]
Model = Annotated[
    Path | None, typer.Option("--model", callback=locate_model, help="A language model that plays, such as books.")
]
Train = Annotated[
    list[Path] | None,
    typer.Option("--train", metavar="FILE", help="n-grams learn from this; else from the first nine tenths of TEXT."),
]
Which = Annotated[Letters, typer.Option("--letters", help="a–z and the space, as Shannon did, or all characters.")]
Known = Annotated[str | None, typer.Option("--known", help=f"How many letters before it are known; else {KNOWN}.")]
Samples = Annotated[int | None, typer.Option("--samples", min=1, help=f"Letters for each of these; else {SAMPLES}.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Which letters; else 0.")]


def shannon(
    text: Text,
    play: Play = False,
    game: Saved = None,
    answers: Answers = None,
    model: Model = None,
    train: Train = None,
    letters: Which = Letters.shannon,
    known: Known = None,
    samples: Samples = None,
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """How much a letter tells once those before it are known: from your guesses, from counts, from a model.

    cutaway shannon novel.txt --play, then cutaway shannon novel.txt --game shannon.json --model books --out curve.svg
    """
    check_output(out, force=force)
    path = (game or SAVED) if play or answers else game
    if path is not None and not (play or answers) and not path.exists():
        raise InputError(f"{path} is not there: play first, with --play --game {path}")
    if path is not None and not path.parent.is_dir():
        raise InputError(f"--game {path}: there is no folder {path.parent}")
    asked = {"known": numbers_in_option(known, "--known"), "samples": samples, "seed": seed}
    more = _read(train) if train else None
    played = _game(text, more, letters, path, asked)
    if play or answers:
        assert path is not None
        curves = [_person(_play(played, path, answers, quiet=as_json))]
    else:
        curves = _curves(played, model, more, path)
        if not _told(curves):
            asked_for = ", ".join(map(str, played.known))
            raise InputError(
                f"nobody here has guessed with {asked_for} letters known: give a --model, or a smaller --known"
            )
    _say(curves, played, text, out, as_json)


def _read(files: list[Path]) -> str:
    from cutaway.before.units import text_pieces

    return "".join(piece.text for piece in text_pieces(files))


def _game(text: Path, more: str | None, letters: Letters, path: Path | None, asked: dict[str, Any]) -> "Game":
    """As asked; what was not asked for is as in the saved game, or as always."""
    from cutaway.before.shannon.game import Game, read_game

    saved = read_game(path) if path is not None and path.exists() else {}
    usual: dict[str, Any] = {"known": numbers_in_option(KNOWN), "samples": SAMPLES, "seed": 0}
    wanted = {name: value for name, value in asked.items() if value is not None}
    terms = {name: wanted.get(name, saved.get(name, value)) for name, value in usual.items()}
    whole = saved["first"] == 0 if "first" in saved else more is not None
    read = _read([text])
    try:
        return Game.of(read, all_letters=letters is Letters.all, whole=whole, more=more or "", **terms)
    except InputError as error:
        raise InputError(f"{text}: {error}") from None


def _play(game: "Game", path: Path, answers: Path | None, *, quiet: bool) -> "Player":
    """Unless all is guessed; Ctrl-C leaves what was guessed, as Esc does."""
    from cutaway.before.shannon.game import Player
    from cutaway.cli.shannon_terminal import play_on
    from cutaway.cli.shared.console import Console

    console = Console(stderr=quiet, soft_wrap=True)
    player, n = Player(game, path), len(game.rounds)
    if player.round is None:
        console.print(f"{path}: finished, {n} of {n} letters; another --game begins a new one")
        return player
    if answers is not None:
        _check_answers(answers, game)
    try:
        return play_on(game, path, answers, quiet=quiet)
    except UnicodeDecodeError:
        raise InputError(f"--answers {answers}: stdin is no text in UTF-8; give the letters to guess") from None
    except KeyboardInterrupt:
        kept = f", kept in {path}" if path.exists() else ""
        console.print(f"\n{len(Player(game, path).guesses)} of {n} letters{kept}")
        raise typer.Exit(130) from None


def _check_answers(path: Path, game: "Game") -> None:
    """Refuses a file without a letter to guess with. A pipe can be read only once, so it is not looked at."""
    from cutaway.before.shannon.bounds import LETTERS

    if not path.is_file():
        return
    try:
        keys = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"--answers {path} is no text in UTF-8: give a file with the letters to guess") from None
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
    with waiting("counting") as report:
        other = reduced(more) if more is not None and game.letters == LETTERS else more
        curves += [counted_curve(game), ngram_curve(game, other, report)]
    if model is not None:
        from cutaway.cli.shared.inside import open_model
        from cutaway.cli.shared.models import tokenizer_for_text

        loaded, tokenizer = open_model(model)
        with waiting(f"{model.name} guesses") as report:
            curves.append(model_curve(game, loaded, tokenizer_for_text(tokenizer, model), model.name, report))
    return [*curves, reader_curve(game)] if game.letters == LETTERS else curves


def _told(curves: "list[Curve]") -> bool:
    """Whether anybody has guessed a letter."""
    return any(one.n for curve in curves for one in curve.bounds)


def _say(curves: "list[Curve]", game: "Game", text: Path, out: Path | None, as_json: bool) -> None:
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
    there = _told(curves)
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

    from cutaway.cli.shared.tables import grid

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
