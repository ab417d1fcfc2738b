"""Evaluates a model by the usual scores of its task.

    translate        BLEU and chrF of beam search
    language_model   bits per byte and perplexity
    masked words     loss and accuracy of the blanks, and of the next sentence if the model was trained for that
    both             accuracy on minimal pairs (BLiMP) and Winograd schemas (WSC273)
    language_model   accuracy and perplexity of last words (LAMBADA)
    classify         GLUE's accuracy, F1 (of class 1, or the mean over the classes) and Matthews correlation
    regress          GLUE's Pearson and Spearman correlation
    tag              accuracy per word, and F1 of whole spans where tags are B-… I-… O
    pictures         accuracy

    report = evaluate(model, tokenizer, sources, references)
    report = evaluate(model, tokenizer, ["a whole book"])
    report = evaluate(model, tokenizer, [Pair("the dogs bark", "the dogs barks"), …])
    report = evaluate(model, tokenizer, [("a man sleeps", "he is awake"), …], ["no", …])

Confidence intervals are bootstrapped over sentences, examples or windows (see `evaluation.bootstrap`).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from cutaway.arguments import Progress, checked, no_progress, with_options
from cutaway.decoding.options import TranslationOptions
from cutaway.decoding.translate import languages, tag_for
from cutaway.decoding.translate_sentences import translate_all
from cutaway.errors import InputError
from cutaway.evaluation import bleu, bootstrap
from cutaway.evaluation.blanks import fill_blanks
from cutaway.evaluation.labels import labelling, pictures, tagging
from cutaway.evaluation.lambada import LastWord, last_words
from cutaway.evaluation.minimal_pairs import Pair, minimal_pairs
from cutaway.evaluation.next_sentence import score_next_sentences
from cutaway.evaluation.options import BootstrapOptions, EvaluationOptions
from cutaway.evaluation.perplexity import surprisal
from cutaway.evaluation.report import Report
from cutaway.evaluation.sentence_log_p import MASKED
from cutaway.evaluation.winograd import Schema, winograd
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

LONGEST_CONTEXT = 1024  # by default: some models would read 8192 tokens to score one


@with_options
def evaluate(
    model: Model,
    tokenizer: Tokenizer | None,
    inputs: Sequence[Any] | np.ndarray,
    wanted: Sequence[Any] | np.ndarray | None = None,
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """The scores of a model for its own task. `wanted` are the references or labels, where the task has some.

    The inputs are texts; pairs of texts; sentences as lists of words, for a tagger; an array of pictures; or a list of
    `Pair`, `Schema` or `LastWord`.
    """
    if model.training:
        raise InputError("the model is in training mode, where dropout is random: call model.eval() first")
    begin = time.perf_counter()
    task = model.config.task
    if isinstance(inputs, np.ndarray):
        task = "pictures"
    elif tokenizer is None:
        raise InputError(f"a model for task={task!r} reads text: give its tokenizer")
    elif len(inputs) and type(inputs[0]) in PROBES:
        task = PROBES[type(inputs[0])]
    if task not in SCORERS:
        raise InputError(f"no score is known for a {model.config.family} model with task={task!r}")
    score, has_answers = SCORERS[task]
    _check_used(options, task)
    if has_answers and wanted is None:
        raise InputError("there is nothing to compare the answers with: give references or labels")
    answers = [wanted] if has_answers else []
    report = score(model, tokenizer, inputs, *answers, progress=progress, options=options)
    return replace(report, seconds=time.perf_counter() - begin)


def _check_used(options: EvaluationOptions, task: str) -> None:
    """Refuses an option that has no effect on this task."""
    for field in fields(options):
        used_by, value = field.metadata.get("used_by", (task,)), getattr(options, field.name)
        if task not in used_by and value != field.default:
            raise InputError(f"{field.name}={value!r} has no effect on the task {task}, only on {', '.join(used_by)}")


@checked
def translation(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """BLEU and chrF of translated sentences."""
    if len(sources) != len(references):
        raise InputError(f"{len(sources)} sources for {len(references)} references")
    bleu.check_installed()
    tag = tag_for(tokenizer, options.to) if languages(tokenizer) else None  # else `to` has chosen a column
    search = TranslationOptions.of(options, to=None)
    hypotheses = translate_all(model, tokenizer, sources, tag=tag, progress=progress, options=search)
    settings = {"beam": options.beam, "length_penalty": options.length_penalty, "prune": options.prune, "tag": tag}
    if options.max_len != TranslationOptions().max_len:
        settings["max_len"] = options.max_len
    told = {name: value for name, value in settings.items() if value is not None}
    return replace(score_translations(hypotheses, references, options), settings=told)


def score_translations(hypotheses: Sequence[str], references: Sequence[str], options: BootstrapOptions) -> Report:
    """BLEU and chrF of translations."""
    counts = [bleu.bleu_counts(hypotheses, references), bleu.chrf_counts(hypotheses, references)]
    found = [one.score() for one in counts]
    return Report(
        "translate",
        len(references),
        {score.name: score.value for score in found},
        bootstrap.intervals({one.name: bootstrap.corpus(one) for one in counts}, len(references), options),
        {score.name: score.signature for score in found},
    )


@checked
def language_modelling(
    model: DecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[str]],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """Bits per byte and perplexity of texts, each a document; a long one may come in pieces."""
    context = _context(model, options)
    stride = max(1, context // 2) if options.stride is None else options.stride
    documents, n_bytes = _documents(tokenizer, texts)
    start_id = model.config.start_id if options.start else None
    found = surprisal(
        model,
        documents,
        context=context,
        stride=stride,
        batch=options.batch or 8,
        start_id=start_id,
        autocast=options.autocast,
        progress=progress,
    )
    per_token = bootstrap.ratio_of(found.nats, found.tokens.astype(np.float64))
    n_tokens, n_windows = found.n_tokens, len(found.nats)
    statistics: dict[str, bootstrap.Statistic] = {
        "bits_per_byte": lambda draws: per_token(draws) * (n_tokens / n_bytes / math.log(2)),
        "perplexity": lambda draws: np.exp(per_token(draws)),
    }
    return Report(
        "language_model",
        len(texts),
        {"bits_per_byte": found.bits_per_byte(n_bytes), "perplexity": found.perplexity},
        bootstrap.intervals(statistics, n_windows, options),
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
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> Report:
    """The loss (nats per blank) and the accuracy of `fill_blanks`; of a model that was also trained to predict whether
    a second sentence follows the first, the accuracy of that."""
    context = _context(model, options)
    documents, _ = _documents(tokenizer, texts)
    how: dict[str, Any] = {"context": context, "seed": options.seed, "batch": options.batch or 8, "progress": progress}
    found = fill_blanks(model, tokenizer, documents, **how)
    sums = {"loss": (found.nats, found.blanks), "accuracy": (found.right, found.blanks)}
    settings = {"context": context, "blanks": int(found.blanks.sum()), "rows": len(found.blanks), "seed": options.seed}
    notes: tuple[str, ...] = ()
    if model.config.task == "pretrain":
        try:
            right = score_next_sentences(model, tokenizer, documents, **how)
            sums["next_sentence"] = (right.astype(np.float64), np.ones(len(right)))
            settings["pairs"] = len(right)
        except InputError as error:  # too little text for pairs is enough for blanks
            notes = (f"next sentences were not scored: {error}",)
    intervals: dict[str, bootstrap.Interval] = {}
    for name, both in sums.items():
        intervals |= bootstrap.intervals({name: bootstrap.ratio_of(*both)}, len(both[0]), options)
    return Report(
        "masked_language_model",
        len(texts),
        {name: float(each.sum() / n.sum()) for name, (each, n) in sums.items()},
        intervals,
        settings=settings,
        notes=notes,
    )


PROBES: dict[type, str] = {Pair: "minimal_pairs", Schema: "winograd", LastWord: "last_words"}
SCORERS: dict[str, tuple[Callable[..., Report], bool]] = {  # by task: who scores it, and whether it has answers
    "translate": (translation, True),
    "language_model": (language_modelling, False),
    **dict.fromkeys(MASKED, (masked_words, False)),
    "minimal_pairs": (minimal_pairs, False),
    "winograd": (winograd, False),
    "last_words": (last_words, False),
    "classify": (labelling, True),
    "regress": (labelling, True),
    "tag": (tagging, True),
    "pictures": (pictures, True),
}


# --- parts ----------------------------------------------------------------------------------------------------------


def _context(model: Any, options: EvaluationOptions) -> int:
    longest = min(getattr(model, "max_len", None) or LONGEST_CONTEXT, LONGEST_CONTEXT)
    return longest if options.context is None else options.context


def _documents(tokenizer: Tokenizer, texts: Sequence[str | Sequence[str]]) -> tuple[list[list[int]], int]:
    """The tokens of each text, and how many bytes all of them have."""
    pieces = [[text] if isinstance(text, str) else text for text in texts]
    documents = [[id for ids in tokenizer.encode_batch(text, special=False) for id in ids] for text in pieces]
    return documents, sum(len(piece.encode()) for text in pieces for piece in text)
