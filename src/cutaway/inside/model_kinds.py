"""What kinds of model there are, by what they answer: how each is asked, and how its report reads.

    kind = kind_of(model)
    question = kind.ask(model, tokenizer, "The dog", " barks", None, AskOptions())

A new kind of model is one more row of `KINDS`; everything else looks here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.inside import questions
from cutaway.inside.question import Question
from cutaway.inside.reports.options import AskOptions
from cutaway.model.embeddings import PatchEmbedding
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer

Ask = Callable[..., Question]  # of the model, its tokenizer, a text or an image, target, versus and options


@dataclass(frozen=True)
class Kind:
    """A kind of model. `name` stands in JSON, `heading` above its guesses in a terminal."""

    name: str
    heading: str
    ask: Ask
    reads_images: bool = False
    translates: bool = False  # it is asked sentence by sentence, and its answer is a text of its own
    continues: bool = False  # its answer goes on with the text
    has_versus: bool = True

    def title(self, given: str) -> str:
        """What a page about this text, or this image file, is called."""
        return Path(given).name if self.reads_images else given


Wanted = str | None


def _next_word(model: Any, tokenizer: Tokenizer, text: str, target: Wanted, versus: Wanted, _: AskOptions) -> Question:
    return questions.ask_next_word(model, tokenizer, text, target, versus)


def _translation(model: Any, tokenizer: Tokenizer, text: str, target: Wanted, _: Wanted, how: AskOptions) -> Question:
    return questions.ask_translation(model, tokenizer, text, target, to=how.to)


def _blank(model: Model, tokenizer: Tokenizer, text: str, target: Wanted, _: Wanted, how: AskOptions) -> Question:
    return questions.ask_blank(model, tokenizer, text, target, as_trained=how.as_trained)


def _label(model: Model, tokenizer: Tokenizer, text: str, target: Wanted, versus: Wanted, how: AskOptions) -> Question:
    first, tab, second = text.partition("\t")
    pair = (first, second) if tab else text
    return questions.ask_label(model, tokenizer, pair, target, versus, as_trained=how.as_trained)


def _image(model: Model, _: None, image: str | Path, target: Wanted, versus: Wanted, how: AskOptions) -> Question:
    return questions.ask_image(model, image, target, versus, mean=how.mean, std=how.std)


NEXT_WORD = Kind("next word", "What comes next", _next_word, continues=True)
TRANSLATION = Kind("translation", "Translation", _translation, translates=True, has_versus=False)
BLANK = Kind("blank", "Blank", _blank, has_versus=False)
LABEL = Kind("label", "Label", _label)
IMAGE = Kind("picture", "What it is", _image, reads_images=True)

KINDS: Mapping[str, Kind] = {  # by task; models of images, whatever their task, are IMAGE
    "language_model": NEXT_WORD,
    "translate": TRANSLATION,
    "masked_language_model": BLANK,
    "pretrain": BLANK,
    "classify": LABEL,
    "next_sentence": LABEL,
    "regress": LABEL,
}


def kind_of(model: Model) -> Kind:
    """The kind of a model; one that gives no answer is refused."""
    model = uncompiled(model)
    if isinstance(getattr(model, "embedding", None), PatchEmbedding):
        return IMAGE
    if model.config.task not in KINDS:
        raise InputError(
            f"a {model.config.family} model for task={model.config.task!r} gives no answer that could be inspected: "
            "use a model that generates, translates, fills blanks or classifies"
        )
    return KINDS[model.config.task]


def ask(
    model: Model,
    tokenizer: Tokenizer | None,
    given: str | Path,
    options: AskOptions,
    *,
    target: str | None = None,
    versus: str | None = None,
) -> tuple[Kind, Question]:
    """The kind of a model, and the question about a text, or about an image's file."""
    model, text = uncompiled(model), str(given)
    kind = kind_of(model)
    if options.to is not None and not kind.translates:
        raise InputError(
            f"to={options.to!r}: a {model.config.family} model for task={model.config.task!r} does not translate"
        )
    if kind.reads_images:
        return kind, kind.ask(model, None, given, target, versus, options)
    if tokenizer is None:
        raise InputError("this model reads text: give its tokenizer")
    if not text.strip():
        raise InputError("the text is empty: write a sentence to look at")
    if versus is not None and not kind.has_versus:
        raise InputError("versus is for next words and labels: leave it out")
    return kind, kind.ask(model, tokenizer, text, target, versus, options)
