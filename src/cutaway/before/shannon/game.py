"""The guessing game: the letters to guess, the number of letters known before each, and the guesses so far.

    game = Game.of(text, known=(0, 1, 4, 100), samples=100)
    game.context(game.rounds[0]), game.letter(game.rounds[0])

A `Player` saves a person's guesses to a file after each one; opening the file again continues the game.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cutaway.before.shannon.bounds import LETTERS, reduced
from cutaway.errors import CheckpointError, InputError
from cutaway.files import read_json, write_json

SHARE = 10  # without other text to learn from, the last tenth is guessed, and the rest is for those who count


class Round(NamedTuple):
    """One letter to guess: the one at `place`, from the `known` letters before it."""

    known: int
    place: int


@dataclass(frozen=True)
class Game:
    """Guesses letters of `text` from `first` on: `samples` for each number of known letters, drawn with the seed."""

    text: str
    letters: str  # the alphabet
    known: tuple[int, ...]
    samples: int
    first: int
    seed: int
    asked: tuple[int, ...]  # `known`, and those that are longer than the text

    @classmethod
    def of(
        cls,
        text: str,
        *,
        known: Sequence[int],
        samples: int = 100,
        all_letters: bool = False,
        whole: bool = False,
        seed: int = 0,
        more: str = "",
    ) -> "Game":
        """Guesses the whole text, or only its end; `more` is other text, which may have further letters."""
        text = text if all_letters else reduced(text)
        if len(text) < 2:
            what = "characters" if all_letters else "letters a–z"
            fix = "give more text" if all_letters else "take all characters, --letters all, or give more text"
            raise InputError(f"fewer than two {what}, so there is nothing to guess from: {fix}")
        letters = "".join(sorted({*text, *more})) if all_letters else LETTERS
        first = 0 if whole else len(text) - max(1, len(text) // SHARE)
        fit = tuple(sorted({n for n in known if 0 <= n < len(text)}))
        if not fit:
            raise InputError(f"known={','.join(map(str, known))}: the text has {len(text)} letters in all")
        return cls(text, letters, fit, samples, first, seed, tuple(sorted(set(known))))

    @cached_property
    def rounds(self) -> list[Round]:
        """The letters to guess, one for each number of known letters in turn."""
        drawn = [[Round(n, place) for place in self._places(n)] for n in self.known]
        return [each[i] for i in range(max(map(len, drawn))) for each in drawn if i < len(each)]

    def _places(self, known: int) -> list[int]:
        low = max(self.first, known)
        n = len(self.text) - low
        random = np.random.default_rng([self.seed, known])
        return (low + random.choice(n, min(n, self.samples), replace=False)).tolist()

    def of_known(self, known: int) -> list[Round]:
        return [one for one in self.rounds if one.known == known]

    def context(self, one: Round) -> str:
        return self.text[one.place - one.known : one.place]

    def letter(self, one: Round) -> str:
        return self.text[one.place]

    @cached_property
    def terms(self) -> dict[str, Any]:
        """What must stay the same for a game to be continued."""
        return {
            "text": hashlib.sha256(self.text.encode()).hexdigest(),
            "letters": "27" if self.letters == LETTERS else "all",
            "known": list(self.known),
            "samples": self.samples,
            "first": self.first,
            "seed": self.seed,
        }


class Player:
    """A person's guesses: for each round the letters that were tried, the correct one last."""

    def __init__(self, game: Game, path: Path) -> None:
        self.game, self.path = game, path
        self.guesses: list[str] = []
        self.open = ""  # what was guessed in vain in this round
        if path.exists():
            self._read()

    @property
    def round(self) -> Round | None:
        """The letter to be guessed; None after the last."""
        return self.game.rounds[len(self.guesses)] if len(self.guesses) < len(self.game.rounds) else None

    def guess(self, letter: str) -> bool | None:
        """Whether this is the letter; None, without cost, if it was tried already or is not in the alphabet.

        Every guess that counts is on the disk before this returns.
        """
        assert self.round is not None
        if letter not in self.game.letters or letter in self.open or len(letter) != 1:
            return None
        right = letter == self.game.letter(self.round)
        self.guesses, self.open = (
            ([*self.guesses, self.open + letter], "") if right else (self.guesses, self.open + letter)
        )
        write_json(self.path, {"game": "shannon", **self.game.terms, "guesses": self.guesses, "open": self.open})
        return right

    def ranks(self) -> dict[int, list[int]]:
        """The number of guesses for each letter, by the number of known letters."""
        found: dict[int, list[int]] = {known: [] for known in self.game.known}
        for one, guessed in zip(self.game.rounds, self.guesses, strict=False):
            found[one.known].append(len(guessed))
        return found

    def _read(self) -> None:
        saved = read_game(self.path)
        for name, value in self.game.terms.items():
            if saved.get(name) != value:
                what = "is a game on another text" if name in ("text", "letters") else f"was begun with another {name}"
                was = "" if name in ("text", "letters") else f", {_told(saved.get(name))}, not {_told(value)}"
                raise InputError(f"{self.path} {what}{was}: give the same, or another file with --game")
        guesses, rest = saved.get("guesses"), saved.get("open")
        if not (isinstance(guesses, list) and isinstance(rest, str) and self._possible(guesses, rest)):
            raise InputError(
                f"{self.path} is damaged, its guesses do not fit the text: begin again with another --game"
            )
        self.guesses, self.open = guesses, rest

    def _possible(self, guesses: list[Any], rest: str) -> bool:
        """Whether these are guesses for the rounds of this game."""
        rounds = self.game.rounds
        right = len(guesses) <= len(rounds) and all(
            isinstance(guessed, str) and guessed[-1:] == self.game.letter(one) and len({*guessed}) == len(guessed)
            for one, guessed in zip(rounds, guesses, strict=False)
        )
        return right and len({*rest}) == len(rest) and {*rest} <= {*self.game.letters}


def read_game(path: Path) -> dict[str, Any]:
    """Reads a saved game and checks its types; `Player` checks whether it fits the text."""
    try:
        saved = read_json(path)
    except CheckpointError as error:
        raise CheckpointError(f"{error}: name another file with --game") from None
    if saved.get("game") != "shannon":
        raise InputError(f"{path} is no saved game: name another file with --game")
    known, *numbers = (saved.get(name) for name in ("known", "first", "seed", "samples"))
    fits = isinstance(known, list) and all(type(number) is int and number >= 0 for number in [*known, *numbers])
    if not (fits and saved["samples"]):
        raise InputError(f"{path} is damaged, its known, samples, first or seed: begin again with another --game")
    return saved


def _told(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
