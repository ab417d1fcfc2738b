"""Attribution of what a model says about a text or a picture: words in, shares out.

    explain_next(model, tokenizer, "Mary and John went home. John gave a drink to", target=" Mary", versus=" John")
    explain_translation(model, tokenizer, "I ate an apple.", to="de")     # a row for each token that was written
    explain_label(model, tokenizer, "what a film", label="positive")
    explain_blank(model, tokenizer, "The [MASK] barked.")
    explain_image(model, "digit.png", at="pixels")

Each gives an `Attribution`; `.words(tokenizer)` puts pieces together. What is shared out is log p of the output, or,
`versus` another, the difference of the two. Special tokens are no words: the baseline keeps them, unless `keep_special`
is False. Methods: "integrated_gradients", "gradient_x_input", "attention_rollout", "value_weighted" (a rollout by what
was moved); further options are the method's own.
"""

from collections.abc import Sequence
from typing import Any

from cutaway.arguments import checked
from cutaway.decoding.classify import Picture
from cutaway.inside import questions
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.questions import Word
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer


@checked
def explain_next(
    model: DecoderModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    target: str | None = None,
    versus: str | None = None,
    method: str = "integrated_gradients",
    **options: Any,
) -> Attribution:
    """What the next word comes from: the likeliest token, or `target`, which goes on with the text to the letter (write
    its space). Of several tokens, each is an output, and those before it are inputs. `versus` another, the difference
    of the two logits at the first token where they part."""
    return questions.ask_next_word(model, tokenizer, text, target, versus).attribute(method, **options)


@checked
def explain_translation(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    to: str | None = None,
    beam: int = 4,
    method: str = "integrated_gradients",
    **options: Any,
) -> Attribution:
    """What each token of a translation comes from: the tokens of the source, and those of the target before it.

    Without a `target`, the sentence is translated first.
    """
    return questions.ask_translation(model, tokenizer, source, target, to=to, beam=beam).attribute(method, **options)


@checked
def explain_label(
    model: Model,
    tokenizer: Tokenizer,
    text: str | tuple[str, str],
    *,
    label: Word | None = None,
    versus: Word | None = None,
    as_trained: bool = False,
    method: str = "integrated_gradients",
    **options: Any,
) -> Attribution:
    """What a label of a text, or of a pair of texts, comes from: the likeliest label, or `label`."""
    asked = questions.ask_label(model, tokenizer, text, label, versus, as_trained=as_trained)
    return asked.attribute(method, **options)


@checked
def explain_blank(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    word: Word | None = None,
    as_trained: bool = False,
    method: str = "integrated_gradients",
    **options: Any,
) -> Attribution:
    """What the word in each blank comes from: the likeliest, or `word`; an output for each blank."""
    return questions.ask_blank(model, tokenizer, text, word, as_trained=as_trained).attribute(method, **options)


@checked
def explain_image(
    model: Model,
    picture: Picture,
    *,
    label: Word | None = None,
    versus: Word | None = None,
    at: str = "patches",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    method: str = "integrated_gradients",
    **options: Any,
) -> Attribution:
    """What a label of a picture comes from: its patches, or its pixels (`at="pixels"`, by gradients only).

    The baseline is black, unless one is given.
    """
    asked = questions.ask_image(model, picture, label, versus, at=at, mean=mean, std=std)
    return asked.attribute(method, **options)
