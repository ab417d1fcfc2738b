"""The options of `generate`, `translate` and the engine below them, each stated once: see `cutaway.arguments`.

Nothing here imports torch, so that the command line can list the options at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cutaway.arguments import Options, option
from cutaway.errors import InputError

MAX_BEAM = 1024  # each hypothesis is a row of the KV cache
MOST_BIAS = 100  # as in the OpenAI API: enough to forbid a token, or to force it
PRUNE = "Drop hypotheses whose log-probability is more than this below the best one's, such as 2: faster."
PENALTY = "The score of a hypothesis is its log-probability divided by length^PENALTY; above 1 favours long texts."


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """How `run_jobs` searches."""

    beam: int = option(1, "Beam size; 1 is greedy, or samples.", least=1, most=MAX_BEAM)
    length_penalty: float = option(1.0, PENALTY)
    early_stopping: bool | Literal["never"] = option(
        False,
        "When a beam search stops: True as soon as there are BEAM finished hypotheses, False when no running one seems "
        "likely to beat them, 'never' when none can.",
    )
    groups: int = option(1, "Number of groups of a diverse beam search.", least=1)
    diversity: float = option(0.5, "What a token costs that another group has just chosen, in log p.", least=0)
    prune: float | None = option(None, PRUNE, least=0, infinite=True)
    rows: int | None = option(None, "Number of texts decoded at a time; by default 128 on a CPU, 64 on a GPU.", least=1)
    end_ids: Sequence[int] | None = option(None, "The tokens that end a text; by default the model's own.")

    def check(self) -> None:
        if self.beam % self.groups:
            raise InputError(f"groups={self.groups} must divide beam={self.beam} evenly")


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(Options):
    """How texts are generated."""

    max_tokens: int = option(100, "Maximum number of new tokens.", least=1)
    temperature: float = option(0.0, "Sampling temperature; 0 decodes greedily.", least=0)
    top_k: int | None = option(None, "Sample from the K most likely tokens only.", least=1, metavar="K")
    top_p: float | None = option(
        None,
        "Sample from the most likely tokens whose probabilities add up to P (nucleus sampling).",
        above=0,
        most=1,
        metavar="P",
    )
    min_p: float | None = option(
        None,
        "Sample only from tokens that are at least P times as likely as the most likely one.",
        least=0,
        most=1,
        metavar="P",
    )
    repetition_penalty: float = option(1.0, "Above 1, makes tokens of the prompt and the text less likely.", above=0)
    presence_penalty: float = option(0.0, "Subtracted from the score of each token that was already generated.")
    frequency_penalty: float = option(0.0, "The same, subtracted each time that the token was generated.")
    logit_bias: Mapping[int, float] | None = option(
        None, "Numbers from -100 to 100 that are added to the scores of tokens, by id.", type=None
    )
    no_repeat_ngram: int | None = option(None, "Never repeat a sequence of N tokens.", least=1, metavar="N")
    bad_words: str | Sequence[str | Sequence[int]] = option(
        (), "A text that must not be generated.", type=list[str], metavar="TEXT"
    )
    min_tokens: int = option(0, "Minimum number of new tokens.", least=0)
    allow: str | Callable[[list[int]], Iterable[int]] | None = option(
        None, "A regular expression that the whole text has to match.", type=str, metavar="REGEX"
    )
    rules: Sequence[Callable[..., Any]] = option((), "More rules of `cutaway.decoding.rules.scores`.", type=None)
    stop: str | Sequence[str] = option((), r"Stop before this text, such as \n.", type=list[str], metavar="TEXT")
    beam: int = option(1, "Beam size; 1 decodes greedily, or samples.", least=1, most=MAX_BEAM)
    n_best: int = option(
        1, "Number of texts, from the beam or sampled.", least=1, most=MAX_BEAM, flags=("--n-best", "--nbest")
    )
    groups: int = option(1, "Number of groups of a diverse beam search.", least=1)
    diversity: float | None = option(
        None, "What a token costs that another group has just chosen, in log p; by default 0.5.", least=0
    )
    prune: float | None = option(None, PRUNE, least=0, infinite=True)
    seed: int | Sequence[int] = option(0, "Random seed for sampling.", type=int)

    def check(self) -> None:
        self.search  # noqa: B018  (checks the options of the beam)
        if self.min_tokens > self.max_tokens:
            raise InputError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        if self.beam > 1 and self.temperature > 0:
            raise InputError(
                f"beam={self.beam} looks for the most likely text, temperature={self.temperature} samples: choose one"
            )
        if self.n_best > self.beam and self.temperature == 0:
            raise InputError(
                f"n_best={self.n_best} needs beam={self.n_best}, or a temperature above 0 to sample as many"
            )
        if self.diversity is not None and self.groups == 1:
            raise InputError(f"diversity={self.diversity} is a cost between groups: set groups to 2 or more")
        if self.prune is not None and self.beam == 1:
            raise InputError(f"prune={self.prune} drops hypotheses of a beam: set beam to 2 or more")
        for name in ("top_k", "top_p", "min_p"):
            if getattr(self, name) is not None and not self.temperature:
                raise InputError(f"{name}={getattr(self, name)} is for sampling: set a temperature above 0")
        for id, bias in (self.logit_bias or {}).items():
            if not abs(bias) <= MOST_BIAS:
                raise InputError(f"logit_bias: {bias:,} for token {id} must be from -{MOST_BIAS} to {MOST_BIAS}")
        for stop in self.stops:
            if not stop:
                raise InputError(f"stop={stop!r} is not a text of at least one character")

    @property
    def search(self) -> SearchOptions:
        """What the engine has to know."""
        return SearchOptions.of(self, diversity=0.5 if self.diversity is None else self.diversity)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def seeds(self, n: int) -> Sequence[int]:
        """The seed of each of n prompts."""
        if not isinstance(self.seed, Sequence):
            return [self.seed] * n
        if len(self.seed) != n:
            raise InputError(f"{len(self.seed)} seeds for {n} prompts: give one for each, or one for all")
        return self.seed


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Options):
    """How texts or pictures are classified."""

    cut: int | None = option(None, "Texts: cut them after this many tokens, of a pair the longer one first.")
    as_trained: bool = option(
        False, "Texts: put special tokens around them as `cutaway train` does, not as the tokenizer does."
    )
    batch_tokens: int = option(8192, "Texts: number of tokens at a time.", least=1)
    mean: Sequence[float] | None = option(None, "Pictures: the mean of each channel; by default the model's.")
    std: Sequence[float] | None = option(None, "Pictures: the deviation of each channel; by default the model's.")
    batch: int = option(256, "Pictures: number at a time.", least=1)


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Options):
    """How texts are translated."""

    to: str | None = option(None, "Target language, of a model that knows several.")
    beam: int = option(4, "Beam size; 1 is greedy.", least=1, most=MAX_BEAM)
    length_penalty: float = option(1.0, PENALTY)
    early_stopping: bool | Literal["never"] = option(False, "When the search stops: see `SearchOptions`.", type=None)
    prune: float | None = option(None, PRUNE, least=0, infinite=True)
    n_best: int = option(1, "Number of translations of each text.", least=1, flags=("--n-best", "--nbest"))
    align: bool = option(False, "Say which source word each word of the translation comes from.")
    prefix: str | Sequence[str | None] | None = option(
        None, "What each translation has to begin with; of several sentences, the first.", type=str
    )
    terms: Mapping[str, str] | None = option(
        None, "Words and the translations to use for them, such as {'dog': 'Rüde'}.", type=None
    )
    split: bool = option(
        True, "Split texts into sentences, or take each text as one sentence.", flags=("--split/--whole",)
    )
    longest: int = option(200, "Maximum number of tokens of a sentence; longer ones are cut.", least=1, type=None)
    max_len: int = option(256, "Maximum number of tokens of a translated sentence.", least=1, type=None)
    growth: tuple[float, float] = option(
        (2.0, 20.0), "(a, b): a sentence of n tokens gets a translation of at most a·n + b tokens.", type=None
    )
    rows: int | None = option(None, "Number of sentences translated at a time.", least=1, type=None)

    def check(self) -> None:
        if self.n_best > self.beam:
            raise InputError(f"n_best={self.n_best} needs beam={self.n_best} or more, not {self.beam}")

    @property
    def search(self) -> SearchOptions:
        """What the engine has to know."""
        return SearchOptions.of(self)
