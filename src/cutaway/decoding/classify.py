"""Classes, numbers and tags: what a fine-tuned model says of a text, a pair of texts, or a picture.

    classify(model, tokenizer, "what a film").label                       # 'positive'
    classify(model, tokenizer, ("a man sleeps", "he is awake")).label     # 'contradiction'
    classify(model, "digit.png").label                                    # '7'

A regression answers with a number; a tagger with a tag for each word, read off the word's first token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.arguments import Progress, checked, no_progress
from cutaway.data.images import read_image
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
    """The likeliest class, and the probability of each."""

    label: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Tag:
    """A word and its likeliest tag."""

    word: str
    tag: str
    probability: float


Answer = Label | float | list[Tag]


@checked
def classify(model: Model, *asked: Any, **options: Any) -> Any:
    """`classify(model, tokenizer, texts)`, or of a model that reads pictures `classify(model, pictures)`.

    One text, a pair (text, second), or a list of them; one picture or a list: a file, or an array of channel × height ×
    width (bytes, or numbers that the model reads as they are). The answer is a `Label`; of a regression a number; of a
    tagger the `Tag` of each word. A list gets a list. A text that is longer than the model reads is refused, unless
    `cut` says after how many tokens texts end: of a pair the longer one is cut, and words behind the cut get no tag.

    `options`: `cut`, `batch_tokens`, `as_trained` (special tokens as `cutaway train` sets them, not as the tokenizer
    does), `progress`; for pictures `mean`, `std`, `batch`, `progress`.
    """
    check_ready(model)
    if model.config.task not in TASKS:
        raise InputError(
            f"a {model.config.family} model with task={model.config.task!r} has no classes: one with task='classify', "
            "'regress' or 'tag' has"
        )
    pictures = model.config.family == "vit"
    if len(asked) != (1 if pictures else 2):
        how = "classify(model, picture)" if pictures else "classify(model, tokenizer, text)"
        raise InputError(f"this model reads {'pictures' if pictures else 'text'}: {how}")
    answer: Callable[..., list[Answer]] = _of_pictures if pictures else _of_texts
    what = asked[-1]
    if isinstance(what, list):
        return answer(model, *asked, **options)
    return answer(model, *asked[:-1], [what], **options)[0]


@checked
def _of_texts(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Any],
    *,
    cut: int | None = None,
    as_trained: bool = False,
    batch_tokens: int = 8192,
    progress: Progress = no_progress,
) -> list[Answer]:
    for number, text in enumerate(texts):
        pair = isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
        if not pair and not isinstance(text, str):
            raise InputError(f"text {number + 1} is {text!r}: give a text, or a pair (text, second)")
        if not pair and model.config.task == "next_sentence":
            raise InputError(f"text {number + 1} is alone: whether a second follows is asked of a pair (text, second)")
    check_cut(model, cut)
    asking: dict[str, Any] = {"batch_tokens": batch_tokens, "progress": progress}
    if model.config.task == "tag":
        return _tags(model, tokenizer, texts, cut, as_trained, asking)
    rows = rows_of(tokenizer, texts, cut, as_trained=as_trained)
    check_room(model, rows)
    return [_said(model, scores) for scores in answers_to(model, rows, **asking)]


@checked
def _of_pictures(
    model: Model,
    pictures: Sequence[Picture],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch: int = 256,
    progress: Progress = no_progress,
) -> list[Answer]:
    images, mean, std = arrays_of(model, pictures, mean, std)
    if not images:
        return []
    scores = answers_to_images(model, np.stack(images), mean=mean, std=std, batch=batch, progress=progress)
    return [_said(model, of_one) for of_one in scores]


def arrays_of(
    model: Model, pictures: Sequence[Picture], mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> tuple[list[np.ndarray], Sequence[float], Sequence[float]]:
    """Pictures as arrays, and the mean and deviation that bytes lose and are divided by: the model's unless given."""
    numbers = model.config.to_dict()
    size, channels = numbers["image_size"], numbers["n_channels"]
    images = []
    for number, picture in enumerate(pictures):
        if isinstance(picture, str | Path):
            picture = read_image(Path(picture), size=size, channels=channels)
        if not isinstance(picture, np.ndarray) or picture.shape != (channels, size, size):
            shape = getattr(picture, "shape", type(picture).__name__)
            raise InputError(f"picture {number + 1} is {shape}: a file or an array {(channels, size, size)} is read")
        images.append(picture)
    return images, mean or numbers["pixel_mean"] or (0.5,), std or numbers["pixel_std"] or (0.5,)


def _tags(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    cut: int | None,
    as_trained: bool,
    asking: dict[str, Any],
) -> list[Answer]:
    sentences: list[list[str]] = []
    for number, text in enumerate(texts):
        if isinstance(text, tuple) or not text.split():
            raise InputError(f"text {number + 1}: a tagger reads one text with words in it")
        sentences.append(text.split())
    cut_up = [first_tokens(tokenizer, words, cut, as_trained=as_trained) for words in sentences]
    check_room(model, [row for row, _ in cut_up])
    scores = answers_to(model, [row for row, _ in cut_up], **asking)
    answers: list[Answer] = []
    for words, (_, places), of_text in zip(sentences, cut_up, scores, strict=True):
        labels = [_label(model, of_text[at]) for at in places]
        answers.append([Tag(word, found.label, found.probability) for word, found in zip(words, labels, strict=False)])
    return answers


def _said(model: Model, scores: np.ndarray) -> Answer:
    return float(scores[0]) if model.config.task == "regress" else _label(model, scores)


def _label(model: Model, scores: np.ndarray) -> Label:
    names = FOLLOWS if model.config.task == "next_sentence" else model.config.labels or range(len(scores))
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    best = int(scores.argmax())
    every = {str(name): float(share) for name, share in zip(names, shares, strict=True)}
    return Label(str(names[best]), float(shares[best]), every)
