"""The options of the commands and Python calls of this room, each stated once: see `cutaway.arguments`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cutaway.arguments import Options, option


class Smoothing(StrEnum):
    """How probability is given to n-grams that were never seen."""

    kneser_ney = "kneser-ney"
    back_off = "back-off"


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """How `cutaway compare` trains its models."""

    minutes: float = option(5.0, "Time for all models together.", above=0)
    steps: int | None = option(None, "Steps of each network; by default as many as fit into the time.", least=1)
    changes: Sequence[str] = option(
        (), "Change the recipe of both networks, such as train.tokens=4096.", type=list[str], flags=("--set",)
    )
    start: str = option("\n", "The beginning of the samples.", show_default="a new line")
    seed: int = option(0, "Seed of the samples.", least=0)


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(Options):
    """How `cutaway chomsky` trains and tests its models."""

    length: int = option(16, "Symbols of the longest words in training.", least=2, most=64)
    steps: int = option(500, "Training steps for each model and language.", least=1)
    minutes: float | None = option(None, "Time for everything together: fewer steps if necessary.", above=0)
    words: int = option(100, "Test words in each range of lengths.", least=1)
    pool: int = option(4096, "Training words of each language.", least=1, type=None)
    seed: int = option(0, "Seed of the words and the initial weights.", least=0)


@dataclass(frozen=True, kw_only=True)
class SkipGramOptions(Options):
    """How word vectors are trained by skip-gram with negative sampling (Mikolov et al. 2013)."""

    d: int = option(100, "Dimension of the vectors.", least=1)
    window: int = option(5, "Maximum number of context words on each side.", least=1)
    negatives: int = option(5, "Negative samples for each pair of words.", least=1)
    min_count: int | None = option(
        None, "Words that occur less often get no vector; by default 5, and 1 in a short text.", least=1
    )
    sample: float | None = option(
        None,
        "Subsample words with a larger share of the text; 0 keeps all. By default 0.001, and 0 in a short text.",
        least=0,
    )
    rate: float = option(0.05, "Initial learning rate, which falls to 0.", above=0)
    epochs: int = option(3, "Number of passes over the text.", least=1)
    seed: int = option(0, "Seed of everything random.", least=0)


@dataclass(frozen=True, kw_only=True)
class NGramOptions(Options):
    """What `cutaway ngram` counts, and the sample that it generates."""

    order: int | None = option(None, "Tokens of an n-gram, the predicted one included; by default 3.", least=1, most=7)
    unit: str | None = option(
        None, "Tokens: words, characters, bytes, or a model whose tokenizer splits the text; by default words."
    )
    smoothing: Smoothing | None = option(None, "Smoothing of unseen n-grams; by default kneser-ney.")
    classes: int | None = option(
        None, "Cluster the tokens into this many Brown clusters, and count n-grams of those.", least=1
    )
    most: int | None = option(
        None, "With --classes: cluster only this many of the most frequent tokens; by default 10000.", least=1
    )
    start: str = option("", "The beginning of the sample.")
    max_tokens: int = option(30, "Length of the sample in tokens; 0 for none.", least=0)
    seed: int = option(0, "Seed of the sample.", least=0)


class Letters(StrEnum):
    """What is guessed in Shannon's experiment."""

    shannon = "27"
    all = "all"


@dataclass(frozen=True, kw_only=True)
class GameOptions(Options):
    """Which letters are guessed in Shannon's experiment, and by whom. None is the saved game's, else the default."""

    play: bool = option(False, "Guess the text yourself. Esc stops; the same command continues.", flags=("--play",))
    game: Path | None = option(
        None, "The file that your guesses are saved to; by default shannon.json. Without --play: show them."
    )
    answers: Path | None = option(None, "Play with the letters in a file, - for stdin, instead of the keyboard.")
    letters: Letters = option(Letters.shannon, "27: a–z and the space, as Shannon did; all: all characters.")
    known: str | None = option(
        None, "Numbers of preceding letters that are known, such as 0-4 or 0,10; by default 0,1,2,3,4,6,8,14,32,64,99."
    )
    samples: int | None = option(None, "Letters to guess for each of these numbers; by default 100.", least=1)
    seed: int | None = option(None, "Seed of the choice of letters; by default 0.", least=0)

    @property
    def playing(self) -> bool:
        return self.play or self.answers is not None
