"""Evaluates models that answer with a label: classifiers, regression models, taggers, and models of pictures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cutaway.arguments import Progress, checked, no_progress
from cutaway.decoding.single_pass import Row, answers_to, answers_to_images, first_tokens, rows_of
from cutaway.errors import InputError
from cutaway.evaluation import bootstrap, scores
from cutaway.evaluation.options import BootstrapOptions, EvaluationOptions
from cutaway.evaluation.report import Report
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

BATCH_TOKENS = 8192


@checked
def labelling(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    wanted: Sequence[Any] | np.ndarray,
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """The scores of a classifier or a regression model, for texts or pairs of texts."""
    _same_number(len(texts), len(wanted))
    rows = rows_of(tokenizer, texts, getattr(model, "max_len", None), as_trained=options.as_trained)
    answers = np.stack(_answers(model, rows, progress, options))
    if model.config.task == "regress":
        made = _scored(answers[:, 0], _numbers(wanted), scores.scores_for(None), options)
    else:
        n_classes = answers.shape[1]
        made = _scored(answers.argmax(axis=1), _classes(model, wanted), scores.scores_for(n_classes), options)
    return Report(model.config.task, len(texts), *made, **_told_of_cut(rows))


@checked
def tagging(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    wanted: Sequence[Sequence[str]],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """The scores of a tagger. A word that was cut off is tagged O where that is a tag, else with the first label."""
    _same_number(len(sentences), len(wanted))
    labels = model.config.labels
    if labels is None:
        raise InputError("this model does not name its tags: its config has no `labels`")
    for number, (tags, sentence) in enumerate(zip(wanted, sentences, strict=True)):
        if len(tags) != len(sentence):
            raise InputError(f"sentence {number + 1} has {len(sentence)} words and {len(tags)} tags")
    max_len = getattr(model, "max_len", None)
    encoded = [first_tokens(tokenizer, sentence, max_len, as_trained=options.as_trained) for sentence in sentences]
    rows = [row for row, _ in encoded]
    nothing = "O" if "O" in labels else labels[0]
    predicted = [
        [labels[int(answer[at].argmax())] for at in places] + [nothing] * (len(sentence) - len(places))
        for answer, (_, places), sentence in zip(
            _answers(model, rows, progress, options), encoded, sentences, strict=True
        )
    ]
    right = np.array([sum(map(str.__eq__, *pair)) for pair in zip(predicted, wanted, strict=True)], dtype=np.float64)
    words = np.array([len(tags) for tags in wanted], dtype=np.float64)
    values = {"accuracy": float(right.sum() / words.sum())}
    statistics = {"accuracy": bootstrap.ratio_of(right, words)}
    if any(label.startswith(("B-", "I-")) for label in labels):
        values["span_f1"] = scores.span_f1(predicted, wanted)
        statistics["span_f1"] = lambda draws: np.asarray(
            [scores.span_f1([predicted[i] for i in row], [wanted[i] for i in row]) for row in draws]
        )
    intervals = bootstrap.intervals(statistics, len(wanted), options)
    return Report("tag", len(wanted), values, intervals, **_told_of_cut(rows, words=int(words.sum())))


@checked
def pictures(
    model: Model,
    tokenizer: Tokenizer | None,
    images: np.ndarray,
    wanted: Sequence[Any] | np.ndarray,
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """The accuracy for pictures (n, channel, height, width): bytes, or numbers that the model reads as they are."""
    _same_number(len(images), len(wanted))
    answers = answers_to_images(
        model,
        images,
        mean=options.mean,
        std=options.std,
        batch=options.batch or 256,
        precision=options.autocast,
        progress=progress,
    )
    made = _scored(answers.argmax(axis=1), _classes(model, wanted), {"accuracy": scores.accuracy}, options)
    settings = {"mean": list(options.mean), "std": list(options.std)}
    return Report(model.config.task, len(images), *made, settings=settings)


# --- parts ----------------------------------------------------------------------------------------------------------


def _answers(model: Model, rows: Sequence[Row], progress: Progress, options: EvaluationOptions) -> list[np.ndarray]:
    tokens = options.batch_tokens or BATCH_TOKENS
    return answers_to(model, rows, batch_tokens=tokens, precision=options.autocast, progress=progress)


def _told_of_cut(rows: Sequence[Row], **settings: Any) -> dict[str, Any]:
    """The fields of a report about rows that were too long."""
    cut = sum(row.cut for row in rows)
    note = (
        f"{cut:,} of {len(rows):,} texts are longer than this model reads and were cut, of a pair the longer one first"
    )
    return {"settings": {"cut": cut, **settings}, "notes": (note,) if cut else ()}


def _scored(
    predicted: np.ndarray, wanted: np.ndarray, metrics: Mapping[str, Callable[..., float]], options: BootstrapOptions
) -> tuple[dict[str, float], dict[str, bootstrap.Interval]]:
    statistics = {
        name: bootstrap.mean_of(predicted == wanted) if name == "accuracy" else bootstrap.each(score, predicted, wanted)
        for name, score in metrics.items()
    }
    intervals = bootstrap.intervals(statistics, len(wanted), options)
    return {name: score(predicted, wanted) for name, score in metrics.items()}, intervals


def _classes(model: Model, wanted: Sequence[Any] | np.ndarray) -> np.ndarray:
    """The number of each wanted class. A name counts as the model's label; digits may also be the number itself."""
    known = {label: number for number, label in enumerate(model.config.labels or ())}
    n_classes = model.config.n_classes or len(known)
    numbers = []
    for row, label in enumerate(wanted):
        number = known.get(str(label))
        if number is None and str(label).isdigit():
            number = int(label)
        if number is None or not 0 <= number < n_classes:
            names = ", ".join(list(known)[:10]) or f"0 … {n_classes - 1}"
            raise InputError(f"label {row + 1} is {label!r}; this model knows {names}")
        numbers.append(number)
    return np.array(numbers)


def _numbers(wanted: Sequence[Any] | np.ndarray) -> np.ndarray:
    try:
        return np.array([float(label) for label in wanted])
    except ValueError as error:
        raise InputError(f"this model predicts a number, but a label is not a number: {error}") from None


def _same_number(inputs: int, wanted: int) -> None:
    if inputs != wanted:
        raise InputError(f"{inputs} examples with {wanted} labels")
    if not inputs:
        raise InputError("no examples, no score")
