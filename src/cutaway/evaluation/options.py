"""The options of `evaluate`, each stated once: see `cutaway.arguments`. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.arguments import Options, option
from cutaway.decoding.options import MAX_BEAM, PENALTY, PRUNE

TRANSLATION = ("translate",)
TEXT = ("language_model",)
SENTENCES = ("minimal_pairs", "winograd")


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions(Options):
    """How confidence intervals are computed."""

    resamples: int = option(
        1000, "Number of bootstrap samples for the confidence intervals; 0 leaves them out.", least=0
    )
    seed: int = option(0, "Random seed of the bootstrap, and of which words are masked.")
    level: float = option(0.95, "Confidence level of the intervals.", above=0, most=1, type=None)


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(BootstrapOptions):
    """How a model is evaluated; most options are for one kind of model, which their help says first."""

    to: str | None = option(None, "Translation: target language, such as de.", used_by=TRANSLATION)
    beam: int = option(4, "Translation: beam size.", least=1, most=MAX_BEAM, used_by=TRANSLATION)
    length_penalty: float = option(1.0, f"Translation: {PENALTY}", used_by=TRANSLATION)
    prune: float | None = option(None, f"Translation: {PRUNE}", least=0, infinite=True, used_by=TRANSLATION)
    max_len: int = option(256, "Translation: maximum number of tokens.", least=1, type=None, used_by=TRANSLATION)
    rows: int | None = option(
        None, "Translation: number of sentences at a time.", least=1, type=None, used_by=TRANSLATION
    )
    context: int | None = option(
        None,
        "Text: number of tokens in a window; by default what the model reads, at most 1024.",
        least=1,
        used_by=(*TEXT, "masked_language_model", "pretrain"),
    )
    stride: int | None = option(
        None, "Text: how far the windows move; by default half a window.", least=1, used_by=TEXT
    )
    start: bool = option(
        True,
        "Text: put the start token before each document; without it the first token is not scored.",
        flags=("--start/--no-start",),
        used_by=(*TEXT, *SENTENCES, "last_words"),
    )
    before: str | None = option(
        None,
        "Pairs: text before each sentence; by default a start token or an empty line.",
        used_by=SENTENCES,
    )
    as_trained: bool = option(
        False, "Put special tokens around a text as `cutaway train` does, not as the tokenizer does.", type=None
    )
    mean: Sequence[float] = option((0.5,), "Pictures: the mean of each channel's values.", type=None)
    std: Sequence[float] = option((0.5,), "Pictures: the standard deviation of each channel's values.", type=None)
    batch: int | None = option(None, "Number of windows or pictures at a time.", least=1, type=None)
    batch_tokens: int | None = option(None, "Number of tokens at a time.", least=1, type=None)
    autocast: Any = option(None, "The dtype to compute in under torch.autocast.", type=None)
