"""Attribution of an answer to the words of a text or the patches of an image.

    explain_next(model, tokenizer, "Mary and John went home. John gave a drink to", target=" Mary", versus=" John")
    explain_translation(model, tokenizer, "I ate an apple.", to="de")     # a row for each token that was written
    explain_label(model, tokenizer, "what a film", label="positive")
    explain_blank(model, tokenizer, "The [MASK] barked.")
    explain_image(model, "digit.png", at="pixels")

Each returns an `Attribution`, whose `.words(tokenizer)` adds up the pieces of each word. What is attributed is log p of
the output, or with `versus` the difference of two logits. The baseline keeps special tokens, unless `keep_special` is
False. Methods: "integrated_gradients", "gradient_x_input", "attention_rollout", "value_weighted" (a rollout of
value-weighted attention); further options are those of the method.
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
    """Attributes the next word: the most likely token, or `target`, which continues the text exactly (write its space).

    >>> explain_next(model, tokenizer, "the cat", target=" sat", steps=2).scores.shape

    If the target has several tokens, each is an output, and those before it are inputs. With `versus`, the difference
    of the two logits is attributed, at the first token in which they differ.
    """
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
    """Attributes each token of a translation to the source and to the target tokens before it.

    >>> explain_translation(translator, its_tokenizer, "I ate", "a dog", method="gradient_x_input").parts

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
    """Attributes the label of a text, or of a pair of texts: the most likely one, or `label`.

    >>> explain_label(classifier, words, "a good film", method="gradient_x_input").outputs
    """
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
    """Attributes the word in each blank: the most likely one, or `word`; there is an output for each blank.

    >>> explain_blank(bert, its_words, "the [MASK] barked .", method="gradient_x_input").outputs
    """
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
    """Attributes the label of an image to its patches, or with `at="pixels"` (gradient methods only) to its pixels.

    >>> explain_image(vit, image, method="gradient_x_input").shape

    The baseline is black unless another is given.
    """
    asked = questions.ask_image(model, picture, label, versus, at=at, mean=mean, std=std)
    return asked.attribute(method, **options)
