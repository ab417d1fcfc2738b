"""How good a model is at what it was made for: one report for each task, by the task's usual scores.

    translate        BLEU and chrF of its beam search
    language_model   bits per byte and perplexity
    masked words     loss and accuracy of the blanks, and of what follows where that was learnt
    both             accuracy of minimal pairs: BLiMP; of Winograd schemas: WSC273
    language_model   accuracy and perplexity of last words: LAMBADA
    classify         accuracy, F1 (of class 1, or the mean of all classes), Matthews: GLUE's
    regress          Pearson, Spearman: GLUE's
    tag              accuracy of words, and F1 of whole spans where tags are B-… I-… O
    pictures         accuracy

    report = evaluate(model, tokenizer, sources, references)
    report = evaluate(model, tokenizer, ["a whole book"])
    report = evaluate(model, tokenizer, [Pair("the dogs bark", "the dogs barks"), …])
    report = evaluate(model, tokenizer, [("a man sleeps", "he is awake"), …], ["no", …])

Intervals are bootstrapped over sentences, examples or windows (see `evaluation.bootstrap`).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from cutaway.arguments import Progress, checked, no_progress
from cutaway.decoding.single_pass import Row, answers_to, answers_to_images, first_tokens, rows_of
from cutaway.decoding.translate import translate_all
from cutaway.errors import InputError
from cutaway.evaluation import bleu, bootstrap, scores
from cutaway.evaluation.blanks import fill_blanks
from cutaway.evaluation.lambada import LastWord, last_words
from cutaway.evaluation.minimal_pairs import MASKED, Pair, minimal_pairs
from cutaway.evaluation.next_sentence import score_next_sentences
from cutaway.evaluation.perplexity import surprisal
from cutaway.evaluation.report import SURE, Report, Sureness
from cutaway.evaluation.winograd import Schema, winograd
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

PROBES: dict[type, Callable[..., Report]] = {Pair: minimal_pairs, Schema: winograd, LastWord: last_words}
LONGEST_CONTEXT = 1024  # unless asked for: some models would read 8192 tokens to score one


@checked
def evaluate(
    model: Model,
    tokenizer: Tokenizer | None,
    inputs: Sequence[Any] | np.ndarray,
    wanted: Sequence[Any] | np.ndarray | None = None,
    **options: Any,
) -> Report:
    """Scores a model by its own task. `options` are those of the task's function below."""
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")
    begin = time.perf_counter()
    if isinstance(inputs, np.ndarray):
        report = pictures(model, inputs, _given(wanted), **options)
    elif tokenizer is None:
        raise InputError(f"a model for task={model.config.task!r} reads text: give its tokenizer")
    elif len(inputs) and type(inputs[0]) in PROBES:
        report = PROBES[type(inputs[0])](model, tokenizer, inputs, **options)
    elif isinstance(model, EncoderDecoderModel):
        report = translation(model, tokenizer, inputs, _given(wanted), **options)
    elif model.config.task == "language_model":
        assert isinstance(model, DecoderModel)
        report = language_modelling(model, tokenizer, inputs, **options)
    elif model.config.task in MASKED:
        report = masked_words(model, tokenizer, inputs, **options)
    elif model.config.task == "tag":
        report = tagging(model, tokenizer, inputs, _given(wanted), **options)
    elif model.config.task in ("classify", "regress"):
        report = labelling(model, tokenizer, inputs, _given(wanted), **options)
    else:
        raise InputError(f"no score is known for a {model.config.family} model with task={model.config.task!r}")
    return replace(report, seconds=time.perf_counter() - begin)


@checked
def translation(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    sure: Sureness = SURE,
    **search: Any,
) -> Report:
    """BLEU and chrF of what `translate_all` finds; `search` are its options."""
    if len(sources) != len(references):
        raise InputError(f"{len(sources)} sources for {len(references)} references")
    report = translations(translate_all(model, tokenizer, sources, **search), references, sure=sure)
    told = {name: value for name, value in search.items() if name != "progress" and value is not None}
    return replace(report, settings={"beam": 4, **told})


def translations(hypotheses: Sequence[str], references: Sequence[str], *, sure: Sureness = SURE) -> Report:
    """BLEU and chrF of translations that are there already."""
    counts = [bleu.bleu_counts(hypotheses, references), bleu.chrf_counts(hypotheses, references)]
    found = [one.score() for one in counts]
    return Report(
        "translate",
        len(references),
        {score.name: score.value for score in found},
        sure.of({one.name: _interval(bootstrap.corpus(one), len(references), sure) for one in counts}),
        {score.name: score.signature for score in found},
    )


@checked
def language_modelling(
    model: DecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[str]],
    *,
    context: int | None = None,
    stride: int | None = None,
    start: bool = True,
    batch: int = 8,
    precision: torch.dtype | None = None,
    sure: Sureness = SURE,
    progress: Progress = no_progress,
) -> Report:
    """Bits per byte and perplexity of texts, each a document by itself; a long one may come in pieces.

    With `start`, the model's start token stands before each, if it has one, and its first token is scored as well.
    """
    context = min(model.max_len or LONGEST_CONTEXT, LONGEST_CONTEXT) if context is None else context
    stride = max(1, context // 2) if stride is None else stride
    pieces = [[text] if isinstance(text, str) else text for text in texts]
    documents = [[id for ids in tokenizer.encode_batch(text, special=False) for id in ids] for text in pieces]
    n_bytes = sum(len(piece.encode()) for text in pieces for piece in text)
    start_id = model.config.start_id if start else None
    found = surprisal(
        model,
        documents,
        context=context,
        stride=stride,
        batch=batch,
        start_id=start_id,
        autocast=precision,
        progress=progress,
    )
    per_token = bootstrap.ratio_of(found.nats, found.tokens.astype(np.float64))
    n_tokens = found.n_tokens
    n_windows = len(found.nats)
    return Report(
        "language_model",
        len(texts),
        {"bits_per_byte": found.bits_per_byte(n_bytes), "perplexity": found.perplexity},
        sure.of(
            {
                "bits_per_byte": _interval(
                    lambda draws: per_token(draws) * (n_tokens / n_bytes / math.log(2)), n_windows, sure
                ),
                "perplexity": _interval(lambda draws: np.exp(per_token(draws)), n_windows, sure),
            }
        ),
        settings={
            "context": context,
            "stride": stride,
            "start_id": start_id,
            "tokens": n_tokens,
            "bytes": n_bytes,
            "windows": n_windows,
        },
    )


@checked
def masked_words(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[str]],
    *,
    context: int | None = None,
    sure: Sureness = SURE,
    **asking: Any,
) -> Report:
    """The loss (nats for each blank) and the accuracy of `fill_blanks`, whose options `asking` are; `sure.seed` draws
    the blanks, too. Of a model that was also trained to tell what follows, the share of pairs that it tells."""
    context = min(getattr(model, "max_len", None) or LONGEST_CONTEXT, LONGEST_CONTEXT) if context is None else context
    pieces = [[text] if isinstance(text, str) else text for text in texts]
    documents = [[id for ids in tokenizer.encode_batch(text, special=False) for id in ids] for text in pieces]
    found = fill_blanks(model, tokenizer, documents, context=context, seed=sure.seed, **asking)
    sums = {"loss": (found.nats, found.blanks), "accuracy": (found.right, found.blanks)}
    settings = {"context": context, "blanks": int(found.blanks.sum()), "rows": len(found.blanks), "seed": sure.seed}
    notes: tuple[str, ...] = ()
    if model.config.task == "pretrain":
        try:
            right = score_next_sentences(model, tokenizer, documents, context=context, seed=sure.seed, **asking)
            sums["next_sentence"] = (right.astype(np.float64), np.ones(len(right)))
            settings["pairs"] = len(right)
        except InputError as error:  # too little text for pairs is enough for blanks
            notes = (f"whether one part follows another was not asked: {error}",)
    return Report(
        "masked_language_model",
        len(texts),
        {name: float(each.sum() / n.sum()) for name, (each, n) in sums.items()},
        sure.of({name: _interval(bootstrap.ratio_of(*both), len(both[0]), sure) for name, both in sums.items()}),
        settings=settings,
        notes=notes,
    )


@checked
def labelling(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    wanted: Sequence[Any] | np.ndarray,
    *,
    as_trained: bool = False,
    sure: Sureness = SURE,
    **asking: Any,
) -> Report:
    """The scores of a classifier, or of a model that answers with a number, for texts or pairs of them.

    `as_trained` puts the special tokens around a text as `cutaway train` does, not as its tokenizer does; `asking` are
    the options of `answers_to`.
    """
    _same_number(len(texts), len(wanted))
    rows = rows_of(tokenizer, texts, getattr(model, "max_len", None), as_trained=as_trained)
    answers = np.stack(answers_to(model, rows, **asking))
    if model.config.task == "regress":
        made = _scored(answers[:, 0], _numbers(wanted), scores.scores_for(None), sure)
    else:
        n_classes = answers.shape[1]
        made = _scored(answers.argmax(axis=1), _classes(model, wanted), scores.scores_for(n_classes), sure)
    return Report(model.config.task, len(texts), *made, **_told_of_cut(rows))


@checked
def tagging(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    wanted: Sequence[Sequence[str]],
    *,
    as_trained: bool = False,
    sure: Sureness = SURE,
    **asking: Any,
) -> Report:
    """The scores of a tagger. A word that was cut off is tagged O where that is a tag, else with the first label.

    `as_trained` and `asking` are as in `labelling`.
    """
    _same_number(len(sentences), len(wanted))
    labels = model.config.labels
    if labels is None:
        raise InputError("this model does not name its tags: its config has no `labels`")
    max_len = getattr(model, "max_len", None)
    cut_up = [first_tokens(tokenizer, sentence, max_len, as_trained=as_trained) for sentence in sentences]
    rows, places = [row for row, _ in cut_up], [where for _, where in cut_up]
    answers = answers_to(model, rows, **asking)
    nothing = "O" if "O" in labels else labels[0]
    said = [
        [labels[int(answer[at].argmax())] for at in where] + [nothing] * (len(sentence) - len(where))
        for answer, where, sentence in zip(answers, places, sentences, strict=True)
    ]
    for number, (tags, sentence) in enumerate(zip(wanted, sentences, strict=True)):
        if len(tags) != len(sentence):
            raise InputError(f"sentence {number + 1} has {len(sentence)} words and {len(tags)} tags")
    right = np.array([sum(map(str.__eq__, *pair)) for pair in zip(said, wanted, strict=True)], dtype=np.float64)
    words = np.array([len(tags) for tags in wanted], dtype=np.float64)
    spans = any(label.startswith(("B-", "I-")) for label in labels)
    values = {"accuracy": float(right.sum() / words.sum())}
    intervals = {"accuracy": _interval(bootstrap.ratio_of(right, words), len(wanted), sure)}
    if spans:
        values["span_f1"] = scores.span_f1(said, wanted)

        def of_draws(draws: np.ndarray) -> np.ndarray:
            return np.asarray([scores.span_f1([said[i] for i in row], [wanted[i] for i in row]) for row in draws])

        intervals["span_f1"] = _interval(of_draws, len(wanted), sure)
    return Report("tag", len(wanted), values, sure.of(intervals), **_told_of_cut(rows, words=int(words.sum())))


@checked
def pictures(
    model: Model,
    images: np.ndarray,
    wanted: Sequence[Any] | np.ndarray,
    *,
    mean: Sequence[float] = (0.5,),
    std: Sequence[float] = (0.5,),
    sure: Sureness = SURE,
    **asking: Any,
) -> Report:
    """The accuracy for pictures (n, channel, height, width): bytes, or numbers that the model reads as they are.

    `asking` are the options of `answers_to_images`.
    """
    _same_number(len(images), len(wanted))
    answers = answers_to_images(model, images, mean=mean, std=std, **asking)
    made = _scored(answers.argmax(axis=1), _classes(model, wanted), {"accuracy": scores.accuracy}, sure)
    return Report(model.config.task, len(images), *made, settings={"mean": list(mean), "std": list(std)})


# --- parts ----------------------------------------------------------------------------------------------------------


def _told_of_cut(rows: Sequence[Row], **settings: Any) -> dict[str, Any]:
    """What a report says of rows that were too long."""
    cut = sum(row.cut for row in rows)
    note = (
        f"{cut:,} of {len(rows):,} texts are longer than this model reads and were cut, of a pair the longer one first"
    )
    return {"settings": {"cut": cut, **settings}, "notes": (note,) if cut else ()}


def _scored(
    said: np.ndarray, wanted: np.ndarray, metrics: Mapping[str, Callable[..., float]], sure: Sureness
) -> tuple[dict[str, float], dict[str, bootstrap.Interval]]:
    statistics = {
        name: bootstrap.mean_of(said == wanted) if name == "accuracy" else bootstrap.each(score, said, wanted)
        for name, score in metrics.items()
    }
    intervals = sure.of({name: _interval(each, len(wanted), sure) for name, each in statistics.items()})
    return {name: score(said, wanted) for name, score in metrics.items()}, intervals


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
        raise InputError(f"this model answers with a number, but a label is none: {error}") from None


def _interval(statistic: bootstrap.Statistic, n: int, sure: Sureness) -> Callable[[], bootstrap.Interval | None]:
    return partial(bootstrap.interval, statistic, n, **sure.options())


def _given(wanted: Sequence[Any] | np.ndarray | None) -> Any:
    if wanted is None:
        raise InputError("what should have come out? Give references or labels")
    return wanted


def _same_number(inputs: int, wanted: int) -> None:
    if inputs != wanted:
        raise InputError(f"{inputs} examples with {wanted} labels")
    if not inputs:
        raise InputError("no examples, no score")
