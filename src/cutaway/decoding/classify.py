"""Classes, numbers and tags: the answers of a fine-tuned model to a text, a pair of texts, or a picture.

    classify(model, tokenizer, "what a film").label                       # 'positive'
    classify(model, tokenizer, ("a man sleeps", "he is awake")).label     # 'contradiction'
    classify(model, "digit.png").label                                    # '7'

A regression model answers with a number; a tagger with a tag for each word, predicted at the word's first token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.arguments import Progress, checked, no_progress, with_options
from cutaway.data.images import read_image
from cutaway.decoding.options import ClassificationOptions
from cutaway.decoding.single_pass import (
    Text,
    answers_to,
    answers_to_images,
    check_cut,
    check_ready,
    check_room,
    first_tokens,
    rows_of,
)
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

FOLLOWS = ("follows", "does not follow")  # the classes of BERT's second question
TASKS = ("classify", "regress", "tag", "next_sentence")
Picture = str | Path | np.ndarray


@dataclass(frozen=True)
class Label:
    """The most likely class, and the probability of each."""

    label: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Tag:
    """A word and its most likely tag."""

    word: str
    tag: str
    probability: float


Answer = Label | float | list[Tag]


@with_options
def classify(model: Model, *inputs: Any, progress: Progress = no_progress, options: ClassificationOptions) -> Any:
    """`classify(model, tokenizer, texts)`, or `classify(model, pictures)` with a model that reads pictures.

    The input is one text, a pair of texts as a tuple, or a list of them; one picture or a list: a file, or an array of
    channel × height × width (bytes, or numbers that the model reads as they are). The answer is a `Label`; with a
    regression model a number; with a tagger the `Tag` of each word. A list gives a list. A text that is longer than the
    model reads is refused unless `cut` is given; words after the cut get no tag.
    """
    check_ready(model)
    if model.config.task not in TASKS:
        raise InputError(
            f"a {model.config.family} model with task={model.config.task!r} has no classes: use one with "
            "task='classify', 'regress' or 'tag'"
        )
    pictures = model.config.family == "vit"
    if len(inputs) != (1 if pictures else 2):
        how = "classify(model, picture)" if pictures else "classify(model, tokenizer, text)"
        raise InputError(f"this model reads {'pictures' if pictures else 'text'}: {how}")
    if pictures and options.cut is not None:
        raise InputError(f"cut={options.cut} is for texts, and this model reads pictures: leave it out")
    many = inputs[-1] if isinstance(inputs[-1], list) else [inputs[-1]]
    if pictures:
        answers = _of_pictures(model, many, options, progress)
    else:
        answers = _of_texts(model, inputs[0], many, options, progress)
    return answers if many is inputs[-1] else answers[0]


@checked
def _of_texts(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Any], options: ClassificationOptions, progress: Progress
) -> list[Answer]:
    for number, text in enumerate(texts):
        pair = isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
        if not pair and not isinstance(text, str):
            raise InputError(f"text {number + 1} is {text!r}: give a text, or a pair (text, second)")
        if not pair and model.config.task == "next_sentence":
            raise InputError(f"text {number + 1} is alone: this model reads pairs (text, second)")
    check_cut(model, options.cut)
    how: dict[str, Any] = {"batch_tokens": options.batch_tokens, "progress": progress}
    if model.config.task == "tag":
        return _tags(model, tokenizer, texts, options, how)
    rows = rows_of(tokenizer, texts, options.cut, as_trained=options.as_trained)
    check_room(model, rows)
    return [_answer(model, scores) for scores in answers_to(model, rows, **how)]


@checked
def _of_pictures(
    model: Model, pictures: Sequence[Picture], options: ClassificationOptions, progress: Progress
) -> list[Answer]:
    images, mean, std = arrays_of(model, pictures, options.mean, options.std)
    if not images:
        return []
    scores = answers_to_images(model, np.stack(images), mean=mean, std=std, batch=options.batch, progress=progress)
    return [_answer(model, of_one) for of_one in scores]


def arrays_of(
    model: Model, pictures: Sequence[Picture], mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> tuple[list[np.ndarray], Sequence[float], Sequence[float]]:
    """Pictures as arrays, and the mean and deviation by which bytes are normalized: by default the model's."""
    numbers = model.config.to_dict()
    size, channels = numbers["image_size"], numbers["n_channels"]
    images = []
    for number, picture in enumerate(pictures):
        if isinstance(picture, str | Path):
            picture = read_image(Path(picture), size=size, channels=channels)
        if not isinstance(picture, np.ndarray) or picture.shape != (channels, size, size):
            shape = getattr(picture, "shape", type(picture).__name__)
            raise InputError(f"picture {number + 1} is {shape}: give a file, or an array {(channels, size, size)}")
        images.append(picture)
    return images, mean or numbers["pixel_mean"] or (0.5,), std or numbers["pixel_std"] or (0.5,)


def _tags(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Text], options: ClassificationOptions, how: dict[str, Any]
) -> list[Answer]:
    sentences: list[list[str]] = []
    for number, text in enumerate(texts):
        if isinstance(text, tuple) or not text.split():
            raise InputError(f"text {number + 1}: a tagger reads single texts that hold words")
        sentences.append(text.split())
    encoded = [first_tokens(tokenizer, words, options.cut, as_trained=options.as_trained) for words in sentences]
    check_room(model, [row for row, _ in encoded])
    scores = answers_to(model, [row for row, _ in encoded], **how)
    answers: list[Answer] = []
    for words, (_, places), of_text in zip(sentences, encoded, scores, strict=True):
        labels = [_label(model, of_text[at]) for at in places]
        answers.append([Tag(word, found.label, found.probability) for word, found in zip(words, labels, strict=False)])
    return answers


def _answer(model: Model, scores: np.ndarray) -> Answer:
    return float(scores[0]) if model.config.task == "regress" else _label(model, scores)


def _label(model: Model, scores: np.ndarray) -> Label:
    names = FOLLOWS if model.config.task == "next_sentence" else model.config.labels or range(len(scores))
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    best = int(scores.argmax())
    every = {str(name): float(share) for name, share in zip(names, shares, strict=True)}
    return Label(str(names[best]), float(shares[best]), every)
