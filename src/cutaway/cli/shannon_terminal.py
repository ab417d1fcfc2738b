"""Shannon's guessing game at a terminal: key by key, or with letters from a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cutaway.errors import InputError
from cutaway.pictures.terminal_text import shown

if TYPE_CHECKING:
    from cutaway.before.shannon.game import Game, Player
    from cutaway.pictures.console import Console

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}
STOPS = ("\x1b", "\x04")  # Esc, Ctrl-D


def play_on(game: "Game", path: Path, answers: Path | None, *, quiet: bool) -> "Player":
    """From where the saved game stands, until the letters, the keys or the patience end."""
    from cutaway.before.shannon.bounds import LETTERS
    from cutaway.before.shannon.game import Player
    from cutaway.pictures.console import Console

    if answers is None and not sys.stdin.isatty():
        raise InputError("stdin is no terminal: play in one, or give the letters with --answers FILE, - for stdin")
    player = Player(game, path)
    console = Console(stderr=quiet, soft_wrap=True)
    with _keyboard() if answers is None else nullcontext(iter(_letters(answers))) as keys:
        _greet(player, console)
        keys = (key.lower() for key in keys) if game.letters == LETTERS else keys
        while player.round is not None and _play_round(player, keys, console):
            pass
    kept = f", saved in {path}" if path.exists() else ""
    console.print(f"{len(player.guesses)} of {len(game.rounds)} letters{kept}")
    return player


def _greet(player: "Player", console: "Console") -> None:
    begun = f"going on with letter {len(player.guesses) + 1}" if player.guesses or player.open else "a new game"
    console.print(f"Which letter comes next? ␣ is the space; Esc stops. {player.path}: {begun}.")


def _play_round(player: "Player", keys: Iterator[str], console: "Console") -> bool:
    """Until the letter is found; False when no more keys come."""
    game, one = player.game, player.round
    assert one is not None
    before = visible_letter(game.context(one))
    console.print(f"{len(player.guesses) + 1}. {one.known} known: «{before}»", end=" ")
    for letter in player.open:
        console.print(visible_letter(letter), end=" ", style="dim")
    for key in keys:
        found = player.guess(key)
        if found is None:
            continue
        console.print(visible_letter(key), end=" ", style="bold" if found else "dim")
        if found:
            n = len(player.guesses[-1])
            console.print(f"✓ {n} {'guess' if n == 1 else 'guesses'}")
            return True
    console.print()
    return False


@contextmanager
def _keyboard() -> Iterator[Iterator[str]]:
    """The keys as they are pressed, none lost while an answer is being written down; the terminal is put back."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield _pressed(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _pressed(descriptor: int) -> Iterator[str]:
    """Until Esc. Fast keys come several at once; arrows and the like, which are Esc and more, are none."""
    while (keys := os.read(descriptor, 64).decode(errors="ignore")) not in ("", *STOPS):
        for key in keys if not keys.startswith(STOPS[0]) else "":
            if key in STOPS:
                return
            yield "\n" if key == "\r" else key


def _letters(path: Path) -> str:
    """Those of a file or of stdin."""
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--answers {path} cannot be read: {error}") from None


def visible_letter(text: str) -> str:
    """With its white space to be seen, and nothing that a terminal would obey."""
    return shown("".join(SHOWN.get(letter, letter) for letter in text))
