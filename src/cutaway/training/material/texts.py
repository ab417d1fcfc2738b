"""Running text: windows of a stream of tokens, or, where every line is a document, the lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.data.batches import Batch, Examples, Source, Windows
from cutaway.data.corpus import Corpus, tokenised_documents
from cutaway.data.sentence_pairs import SentencePairs
from cutaway.errors import ConfigError
from cutaway.objectives import NextToken, Pretraining
from cutaway.tokens import Tokenizer
from cutaway.training.material.common import Material, Say, n_to_train_on, objective_for, paths_of, special_numbers
from cutaway.training.recipe import DataPart, Recipe


def texts(recipe: Recipe, tokenizer: Tokenizer, say: Say) -> Material:
    """Windows of a stream; or, where every line is a document, the lines themselves."""
    d = recipe.data
    end_id = tokenizer.eos_id if recipe.objective.kind in ("next_token", "spans") else None

    def corpus(names: Sequence[str]) -> Corpus:
        say(f"reading {', '.join(names)}")
        return tokenised_documents(paths_of(recipe, names), tokenizer, split=d.split, end_id=end_id)  # type: ignore[arg-type]

    train = corpus(d.train)
    valid = corpus(d.valid) if d.valid else None
    if valid is None and (d.valid_share or d.valid_last):
        train, valid = part_text(train, d) if d.split != "line" else part_lines(train, d)
    objective = objective_for(recipe, tokenizer)
    source = _text_source(recipe, train, objective, tokenizer, shuffle=True)
    valid_source = None if valid is None else _text_source(recipe, valid, objective, tokenizer, shuffle=False)
    starts = d.split == "line" or recipe.objective.kind == "spans"
    numbers = {**special_numbers(tokenizer, starts=starts), "max_len": d.seq_len}
    per_token = None if valid is None else valid.n_bytes / max(1, len(valid.ids))
    prints = " ".join(part.fingerprint for part in (train, valid) if part is not None)
    return Material(objective, source, valid_source, prints, tokenizer, numbers, per_token)


def _text_source(recipe: Recipe, corpus: Any, objective: Any, tokenizer: Tokenizer, *, shuffle: bool) -> Source:
    d, t = recipe.data, recipe.train
    extra = getattr(objective, "extra", 0)
    if d.split == "line" and not isinstance(objective, Pretraining):
        width = extra if isinstance(extra, int) else max(extra.values())
        return Examples(
            {"text": corpus}, tokens=t.tokens, seed=recipe.seed, shuffle=shuffle, extra={"text": width},
            longest={"text": d.seq_len}, multiple=t.accumulate, most_rows=t.rows,
        )  # fmt: skip
    rows = t.rows or max(1, t.tokens // d.seq_len)
    if rows % t.accumulate:
        raise ConfigError(f"{rows} rows of a step do not divide into train.accumulate={t.accumulate} parts")
    length = d.seq_len - (extra if isinstance(extra, int) else 0)
    if isinstance(objective, Pretraining):
        return SentencePairs(
            corpus, sentence_ends(tokenizer), rows=rows, seq_len=length, seed=recipe.seed, shuffle=shuffle
        )
    windows = Windows(
        corpus, rows=rows, seq_len=d.seq_len if isinstance(objective, NextToken) else length, seed=recipe.seed,
        shuffle=shuffle, borders=d.borders and isinstance(objective, NextToken),
    )  # fmt: skip
    return windows if isinstance(objective, NextToken) else WithoutLast(windows)


class WithoutLast:
    """Windows for objectives that have no use for the token after a window."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.steps, self.n_examples = windows, windows.steps, windows.n_examples

    def __call__(self, step: int) -> Batch:
        return {"text": self.windows(step)["text"][:, :-1]}


def part_text(corpus: Corpus, d: DataPart) -> tuple[Corpus, Corpus]:
    """A text in two: the first part to train on, the last share of its tokens to measure with."""
    if d.valid_last:
        raise ConfigError(f"data.valid_last={d.valid_last} counts examples, and running text has none: valid_share")
    return _parted(corpus, n_to_train_on(len(corpus.ids), d))


def part_lines(corpus: Corpus, d: DataPart) -> tuple[Corpus, Corpus]:
    """Lines in two: all but the last, and the last share or number of them."""
    n = n_to_train_on(len(corpus), d)
    return _parted(corpus, int(corpus.starts[n]))


def _parted(corpus: Corpus, cut: int) -> tuple[Corpus, Corpus]:
    """The tokens before a place and those from it on; each part has as many bytes per token as the whole."""
    starts = np.asarray(corpus.starts)
    before = np.append(starts[starts < cut], cut)
    after = np.append(cut, starts[starts > cut]) - cut
    n_bytes = round(corpus.n_bytes * cut / len(corpus.ids))  # tokens are not traced back to their bytes
    return (
        Corpus(corpus.ids[:cut], before, n_bytes, f"{corpus.fingerprint} up to {cut}"),
        Corpus(corpus.ids[cut:], after, corpus.n_bytes - n_bytes, f"{corpus.fingerprint} from {cut}"),
    )


def sentence_ends(tokenizer: Tokenizer) -> Any:
    """For each id: does a sentence end with it?"""
    return np.array([tokenizer.token(i).rstrip("Ċ▁").endswith((".", "!", "?")) for i in range(tokenizer.vocab_size)])
