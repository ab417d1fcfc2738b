"""Who plays Shannon's game: n-gram models, language models, a person; and what each says of the entropy.

    curve = model_curve(game, model, tokenizer)
    curve.bits        mean −log₂ p of the right letter, by the number of letters known
    curve.bounds      what its guesses alone would say, the likeliest letter guessed first

A person has no `bits`: nobody can read the probabilities in a head, which is why Shannon counts guesses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from cutaway.arguments import Progress, no_progress
from cutaway.before.ngrams.counts import HIGHEST
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.before.shannon.bounds import LETTERS, READER, Bounds, bounds, counted_guesses, folded
from cutaway.before.shannon.game import Game, Player
from cutaway.before.shannon.next_letter import NextLetter
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.pictures import Lines
from cutaway.tokens import Tokenizer

Chances = Float64[np.ndarray, "text letter"]


@dataclass(frozen=True)
class Curve:
    """A player's results by the number of known letters. `ranks` are the guesses that each letter took."""

    name: str
    known: tuple[int, ...]
    bits: tuple[float, ...]
    bounds: tuple[Bounds, ...]
    ranks: tuple[tuple[int, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN."""
        return {
            "name": self.name,
            "known": list(self.known),
            "bits": [_plain(bits) for bits in self.bits],
            "letters": [one.n for one in self.bounds],
            "lower": [_plain(one.lower) for one in self.bounds],
            "upper": [_plain(one.upper) for one in self.bounds],
            "guesses": [list(ranks) for ranks in self.ranks],
        }

    @property
    def drawn_as(self) -> str:
        """The name of its line, which says if it is the middle between two bounds and not measured."""
        return f"{self.name}, middle" if all(map(isnan, self.bits)) else self.name

    def line(self) -> list[float]:
        """One number for each point: the bits; without them, the middle between the bounds."""
        middle = [(one.lower + one.upper) / 2 for one in self.bounds]
        return [m if isnan(b) else b for b, m in zip(self.bits, middle, strict=True)]


def _plain(value: float) -> float | None:
    return None if isnan(value) else round(value, 4)


NONE = Bounds(0, nan, nan)
BITS = "bits for a letter"


def counted_curve(game: Game) -> Curve:
    """The entropy estimates from the n-grams of the whole text."""
    found = counted_guesses(ids_of_game(game, game.text), game.known[-1] + 1)
    bits = tuple(found[n] if n < len(found) else nan for n in game.known)
    return Curve("counted", game.known, bits, (NONE,) * len(bits))


def ngram_curve(game: Game, text: str | None = None, progress: Progress = no_progress) -> Curve:
    """n-gram models of each length, trained on another text or on the part that is not guessed."""
    ids = ids_of_game(game, game.text[: game.first] if text is None else text)
    if not len(ids):
        raise InputError("there is no text to count n-grams in: give other text to learn from")

    def chances(known: int, texts: Sequence[str]) -> Chances | None:
        if known >= HIGHEST:
            return None
        model = train_ngrams(ids, len(game.letters), known + 1)
        return np.stack([model.next_probabilities(ids_of_game(game, text)) for text in texts])

    return _curve(game, "n-gram", chances, progress)


def model_curve(
    game: Game, model: Model, tokenizer: Tokenizer, name: str = "model", progress: Progress = no_progress
) -> Curve:
    """A language model, whatever its tokens are."""
    if not isinstance(model, DecoderModel) or isinstance(model, EncoderDecoderModel):
        raise InputError(f"{name} does not go on with a text: a language model is needed, such as `books`")
    if model.config.task != "language_model":
        raise InputError(f"{name} has the head of task={model.config.task!r}: a language model is needed")
    next_letter = NextLetter(model, tokenizer, game.letters, folded if game.letters == LETTERS else lambda c: c)
    done = 0

    def chances(known: int, texts: Sequence[str]) -> Chances:
        nonlocal done
        found = next_letter(texts, lambda now, _: progress(done + now, len(game.rounds)))
        done += len(texts)
        return found

    return _curve(game, name, chances, lambda done, total: None)


def person_curve(player: Player, name: str = "you") -> Curve:
    ranks = tuple(map(tuple, player.ranks().values()))
    known = player.game.known
    return Curve(name, known, (nan,) * len(known), tuple(map(bounds, ranks)), ranks)


def reader_curve(game: Game) -> Curve:
    """The results of Shannon's own reader, for the same numbers of known letters."""
    each = tuple(Bounds(100 if n > 1 else 0, *READER[n + 1]) if n + 1 in READER else NONE for n in game.known)
    return Curve("reader 1951", game.known, (nan,) * len(each), each)


def ids_of_game(game: Game, text: str) -> Int64[np.ndarray, " letter"]:
    index = {letter: i for i, letter in enumerate(game.letters)}
    return np.fromiter((index[letter] for letter in text), np.int64, len(text))


def ranks_of(chances: Chances, right: Int64[np.ndarray, " text"]) -> Int64[np.ndarray, " text"]:
    """The rank of the correct letter, the likeliest first; ties in the order of the alphabet."""
    p = np.take_along_axis(chances, right[:, None], axis=1)
    before = (chances > p) | ((chances == p) & (np.arange(chances.shape[1]) < right[:, None]))
    return 1 + before.sum(axis=1)


def _curve(game: Game, name: str, chances: Callable[[int, Sequence[str]], Chances | None], progress: Progress) -> Curve:
    bits, ranks = [], []
    for number, known in enumerate(game.known, 1):
        rounds = game.of_known(known)
        p = chances(known, [game.context(one) for one in rounds])
        right = ids_of_game(game, "".join(map(game.letter, rounds)))
        bits.append(nan if p is None else float(-np.log2(np.take_along_axis(p, right[:, None], axis=1)).mean()))
        ranks.append(() if p is None else tuple(ranks_of(p, right).tolist()))
        progress(number, len(game.known))
    return Curve(name, game.known, tuple(bits), tuple(map(bounds, ranks)), tuple(ranks))


def picture(curves: Sequence[Curve], title: str) -> Lines:
    """All players by N: bits, with the bounds as bands; for a person the middle between the bounds."""
    places = [known + 1 for known in curves[0].known]
    drawn = {curve.drawn_as: curve for curve in curves if not all(map(isnan, curve.line()))}
    bands = {
        name: [[one.lower for one in curve.bounds], [one.upper for one in curve.bounds]]
        for name, curve in drawn.items()
        if not all(isnan(one.upper) for one in curve.bounds)
    }
    middle = any(name != curve.name for name, curve in drawn.items())
    said = "bands: from the lower to the upper bound" + ("; middle: halfway between them, not measured" * middle)
    y_name = f"{BITS} ({said})" if bands else BITS
    lines = {name: curve.line() for name, curve in drawn.items()}
    return Lines(places, lines, bands, title, "N (N − 1 letters are known)", y_name, log_x=True)
