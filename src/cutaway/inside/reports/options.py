"""The options of `inspect`, `lens`, `patch` and `circuit`, for Python and the command line; nothing imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cutaway.arguments import Options, option
from cutaway.errors import InputError


class Part(StrEnum):
    """The parts of an inspection."""

    answer = "answer"
    attribution = "attribution"
    writers = "writers"
    heads = "heads"
    alignment = "alignment"


class Method(StrEnum):
    """Methods of attribution, by their short names."""

    integrated = "integrated"
    gradient = "gradient"
    rollout = "rollout"
    value = "value"


class Stream(StrEnum):
    """The two stacks of a translator."""

    encoder = "encoder"
    decoder = "decoder"


class Over(StrEnum):
    """What is patched."""

    residual = "residual"
    heads = "heads"
    attention = "attention"
    feed_forward = "feed_forward"
    cross = "cross"
    cross_heads = "cross_heads"


class Ablation(StrEnum):
    """What replaces a value that is taken away."""

    zero = "zero"
    mean = "mean"
    resample = "resample"


@dataclass(frozen=True, kw_only=True)
class AskOptions(Options):
    """How a model is asked about a text or an image."""

    to: str | None = option(None, "The target language, for a translator with several.")
    as_trained: bool = option(False, "Add special tokens as `cutaway train` did.", type=None)
    mean: Sequence[float] | None = option(None, "The mean with which pixels are normalised.", type=None)
    std: Sequence[float] | None = option(None, "The standard deviation with which they are normalised.", type=None)


@dataclass(frozen=True, kw_only=True)
class InspectOptions(AskOptions):
    """What is shown of the inside, and how."""

    show: Sequence[str] = option((), "Show only this part.", type=list[Part])
    target: str | None = option(None, "Ask about this answer instead of the model's own.")
    versus: str | None = option(None, "Compare with this answer instead of the runner-up.")
    method: str = option(Method.integrated, "How the answer is attributed to the words.", type=Method)
    steps: int | None = option(16, "Steps of integrated gradients: more are slower and more exact.", least=1, type=int)
    layer: int | None = option(None, "Show only the heads of this block.", least=0)
    head: int | None = option(None, "Draw this head large.", least=0)
    k: int = option(5, "Number of guesses.", least=1)

    def check(self) -> None:
        unknown = sorted(set(self.show) - set(Part))
        if unknown:
            raise InputError(f"show={str(unknown[0])!r} is not one of {', '.join(Part)}")


@dataclass(frozen=True, kw_only=True)
class LensOptions(AskOptions):
    """Which layers are read, and which words are followed."""

    follow: Sequence[str] = option((), "Follow this word through the layers.", type=list[str])
    stream: str | None = option(None, "Read this stack; a translator's encoder is read by its decoder.", type=Stream)
    tuned: Path | None = option(None, "Look through this tuned lens, a file that --tune wrote.")
    target: str | None = option(None, "The translation that a translator reads, instead of its own.")
    top: int = option(5, "Number of words of each layer in the data.", least=1)


@dataclass(frozen=True, kw_only=True)
class PatchOptions(AskOptions):
    """What is patched, and what is measured."""

    over: str = option(Over.residual, "What is patched; heads are patched one by one.", type=Over)
    right: str | None = option(None, "The answer to CLEAN; the model's own unless given.")
    wrong: str | None = option(None, "The answer to CORRUPTED; the model's own unless given.")
    layers: Sequence[int] | None = option(None, "Only these blocks.", type=None)
    stream: str | None = option(None, "The stack of a translator; the decoder unless given.", type=Stream)
    fast: bool = option(False, "Attribution patching: an estimate from one forward and backward pass.")
    ablate: str | None = option(
        None, "Ablate each place instead; resample takes its value from CORRUPTED.", type=Ablation
    )
    target: str = option("", "The translation so far, for a translator; empty unless given.")

    def check(self) -> None:
        if self.ablate is not None and self.fast:
            raise InputError("fast estimates patches, and ablate makes none: leave out one of them")

    def check_second_text(self, given: bool) -> None:
        """Refuses a second text that is not used, and asks for one that is needed."""
        if self.ablate is None and not given:
            raise InputError("a second text is missing: one with another answer and as many tokens; or ablate=zero")
        if self.ablate is not None and (self.ablate == Ablation.resample) != given:
            raise InputError("ablate=resample takes values from a second text; zero and mean need one text alone")


@dataclass(frozen=True, kw_only=True)
class CircuitOptions(Options):
    """What a circuit is looked for on."""

    prompts: Path | None = option(
        None, "ioi: templates (JSON); coreference: schemas; alignment: lines, source TAB target."
    )
    limit: int | None = option(None, "Number of prompts.", least=2)
    size: int = option(30, "Maximum number of heads.", least=1)
    to: str | None = option(None, "The target language, for a translator with several.")
    edges: bool = option(False, "Measure the edges, too: a pass for every two heads.")
