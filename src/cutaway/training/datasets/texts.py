"""Running text: windows of a stream of tokens, or sequences of their own: lines, or what spans are cut out of."""

from collections.abc import Iterator, Sequence
from typing import Any

from cutaway.data.batches import Batch, Examples, Source, Windows
from cutaway.data.corpus import Corpus, part_of, size_of, tokenised_documents
from cutaway.data.dedup import Repeats, repeats, without_repeats
from cutaway.data.sentence_pairs import SentencePairs, sentence_ends
from cutaway.data.text_files import read_documents
from cutaway.errors import ConfigError
from cutaway.objectives import NextToken, Pretraining, SpanCorruption
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.shared import (
    Say,
    TrainingData,
    check_lengths,
    holds_out,
    n_to_train_on,
    objective_for,
    paths_of,
    special_numbers,
)
from cutaway.training.recipe import Recipe


def texts(recipe: Recipe, tokenizer: Tokenizer, say: Say) -> TrainingData:
    """The corpora to train on and to measure with, and their batches."""
    d = recipe.data
    end_id = tokenizer.eos_id if recipe.objective.kind == "next_token" else None

    def corpus(names: Sequence[str], **how: Any) -> Corpus:
        say(f"reading {', '.join(names)}")
        return tokenised_documents(paths_of(recipe, names), tokenizer, split=d.split, end_id=end_id, **how)  # type: ignore[arg-type]

    valid: Corpus | None
    both = repeated_texts(recipe)
    if holds_out(d):
        kept, total = _kept(recipe)
        train, valid = corpus(d.train, part=(0, kept), wrap=d.wrap), corpus(d.train, part=(kept, total))
    else:
        train = corpus(d.train, wrap=d.wrap, left_out=both.left_out)
        valid = corpus(d.valid) if d.valid else None
    objective = objective_for(recipe, tokenizer)
    source = _text_source(recipe, train, objective, tokenizer, shuffle=True)
    valid_source = None if valid is None else _text_source(recipe, valid, objective, tokenizer, shuffle=False)
    starts = d.split == "line" or recipe.objective.kind == "spans"
    numbers = {**special_numbers(tokenizer, starts=starts), "max_len": d.seq_len}
    per_token = None if valid is None else valid.n_bytes / len(valid.ids)
    prints = " ".join(part.fingerprint for part in (train, valid) if part is not None)
    return TrainingData(objective, source, valid_source, prints, tokenizer, numbers, per_token, notes=list(both.said()))


def repeated_texts(recipe: Recipe) -> Repeats:
    """What of the validation text stands in the training text; nothing where nobody asks, or it is one text in two."""
    d = recipe.data
    if not d.apart or not d.valid:
        return Repeats((), (), 0.0)
    return repeats(paths_of(recipe, d.train), paths_of(recipe, d.valid), d.split)  # type: ignore[arg-type]


def training_texts(recipe: Recipe) -> Iterator[str]:
    """The text that is learnt from, in pieces: all that a new tokenizer may see."""
    d = recipe.data
    pieces = read_documents(paths_of(recipe, d.train), d.split, wrap=d.wrap)  # type: ignore[arg-type]
    pieces = without_repeats(pieces, repeated_texts(recipe).left_out)
    if holds_out(d):
        pieces = part_of(pieces, d.split, 0, _kept(recipe)[0])  # type: ignore[arg-type]
    return (piece.text for piece in pieces)


def _kept(recipe: Recipe) -> tuple[int, int]:
    """How much of a text is left when its end is held out, and how much there is, as `size_of` counts."""
    d = recipe.data
    if d.valid_last and d.split != "line":
        raise ConfigError(f"data.valid_last={d.valid_last} counts examples, and running text has none: valid_share")
    total = size_of(paths_of(recipe, d.train), d.split)  # type: ignore[arg-type]
    return n_to_train_on(total, d), total


def _text_source(recipe: Recipe, corpus: Corpus, objective: Any, tokenizer: Tokenizer, *, shuffle: bool) -> Source:
    d, t = recipe.data, recipe.train
    spans = isinstance(objective, SpanCorruption)
    extra = 1 if spans else objective.extra
    # spans: something hidden and something left; a pair: two sentences; lines end with one that predicts nothing
    check_lengths(d.seq_len, extra, 2 if spans or isinstance(objective, Pretraining) else 1)
    if spans or (d.split == "line" and not isinstance(objective, Pretraining)):
        # a row of spans is of one document: two in a row would need a mask across source and target
        return Examples(
            {"text": corpus.cut(d.seq_len - extra) if spans else corpus}, tokens=t.tokens, seed=recipe.seed,
            shuffle=shuffle, extra={"text": extra}, longest={"text": d.seq_len}, multiple=t.accumulate,
            most_rows=t.rows,
        )  # fmt: skip
    rows = t.rows or max(1, t.tokens // d.seq_len)
    if rows % t.accumulate:
        raise ConfigError(f"{rows} rows of a step do not divide into train.accumulate={t.accumulate} parts")
    if isinstance(objective, Pretraining):
        return SentencePairs(
            corpus, sentence_ends(tokenizer), rows=rows, seq_len=d.seq_len - extra, seed=recipe.seed, shuffle=shuffle
        )
    windows = Windows(
        corpus, rows=rows, seq_len=d.seq_len - extra, seed=recipe.seed, shuffle=shuffle, borders=d.borders
    )
    return windows if isinstance(objective, NextToken) else WithoutLast(windows)


class WithoutLast:
    """Windows for objectives that have no use for the token after a window."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.steps, self.n_examples = windows, windows.steps, windows.n_examples

    def __call__(self, step: int) -> Batch:
        return {name: values[:, :-1] for name, values in self.windows(step).items()}
