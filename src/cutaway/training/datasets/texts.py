"""Running text: windows of a stream of tokens, or rows of their own (lines, or documents that lose spans)."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cutaway.data.batches import Batch, Examples, Source, Windows
from cutaway.data.corpus import Corpus, part_of, size_of, tokenised_documents
from cutaway.data.text_files import read_documents, without_documents
from cutaway.errors import ConfigError
from cutaway.objectives import NextToken
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.choose_tokenizer import choose_tokenizer, special_ids
from cutaway.training.datasets.held_out import check_length, holds_out, n_to_train_on, paths_of
from cutaway.training.datasets.training_data import Note, TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks import is_windowed, task_of

if TYPE_CHECKING:
    from cutaway.data.dedup import Repeats


class TextFiles:
    """The text files of a recipe."""

    def __init__(self, recipe: Recipe, note: Note) -> None:
        self.recipe, self.note, self.data = recipe, note, recipe.data
        self.train, self.valid = (paths_of(recipe, names) for names in (self.data.train, self.data.valid))

    def prepare(self, start: Tokenizer | None) -> TrainingData:
        """`start` is the starting model's tokenizer."""
        recipe, d = self.recipe, self.data
        tokenizer = choose_tokenizer(recipe, start, self.training_texts, self.note)
        train, valid = self._corpora(tokenizer)
        objective = task_of(recipe).objective(recipe, tokenizer)
        starts = d.split == "line" or recipe.objective.kind == "spans"
        return TrainingData(
            task=task_of(recipe),
            objective=objective,
            train=self._batches(train, objective, tokenizer, shuffle=True),
            valid=None if valid is None else self._batches(valid, objective, tokenizer, shuffle=False),
            fingerprint=" ".join(part.fingerprint for part in (train, valid) if part is not None),
            tokenizer=tokenizer,
            model_settings={**special_ids(tokenizer, starts=starts), "max_len": d.seq_len},
            bytes_per_token=None if valid is None else valid.n_bytes / len(valid.ids),
            notes=list(self.repeats.messages()) if self.repeats else [],
        )

    def training_texts(self) -> Iterator[str]:
        """The training text in pieces, without what is held out: what a new tokenizer is trained on."""
        d = self.data
        pieces = read_documents(self.train, d.split, wrap=d.wrap)  # type: ignore[arg-type]
        if self.repeats:
            pieces = without_documents(pieces, self.repeats.left_out)
        if holds_out(d):
            pieces = part_of(pieces, d.split, 0, self._split_at[0])  # type: ignore[arg-type]
        return (piece.text for piece in pieces)

    @cached_property
    def repeats(self) -> "Repeats | None":
        """Training documents that overlap with the validation text; None where one text is split in two."""
        if not self.data.apart or not self.data.valid:
            return None
        from cutaway.data.dedup import find_repeats

        return find_repeats(self.train, self.valid, self.data.split)  # type: ignore[arg-type]

    @cached_property
    def _split_at(self) -> tuple[int, int]:
        """Where the validation text begins, and where it ends, as `size_of` counts."""
        d = self.data
        if d.valid_last and d.split != "line":
            raise ConfigError(f"data.valid_last={d.valid_last} counts examples: for running text, use data.valid_share")
        total = size_of(self.train, d.split)  # type: ignore[arg-type]
        return n_to_train_on(total, d), total

    def _corpora(self, tokenizer: Tokenizer) -> tuple[Corpus, Corpus | None]:
        """The tokens to train on and those to validate with."""
        d = self.data
        how: dict[str, Any] = {"split": d.split, "end_id": tokenizer.eos_id if task_of(self.recipe).ends else None}
        self.note(f"reading {', '.join(d.train)}")
        if holds_out(d):
            kept, total = self._split_at
            train = tokenised_documents(self.train, tokenizer, part=(0, kept), wrap=d.wrap, **how)
            return train, tokenised_documents(self.train, tokenizer, part=(kept, total), **how)
        train = tokenised_documents(
            self.train, tokenizer, wrap=d.wrap, left_out=self.repeats.left_out if self.repeats else (), **how
        )
        if not d.valid:
            return train, None
        self.note(f"reading {', '.join(d.valid)}")
        return train, tokenised_documents(self.valid, tokenizer, **how)

    def _batches(self, corpus: Corpus, objective: Any, tokenizer: Tokenizer, *, shuffle: bool) -> Source:
        recipe, d, t = self.recipe, self.data, self.recipe.train
        is_spans, is_pretraining = (recipe.objective.kind == kind for kind in ("spans", "pretrain"))
        extra = 1 if is_spans else objective.extra
        # spans: something hidden and something left; a pair: two sentences
        check_length(d.seq_len, extra, 2 if is_spans or is_pretraining else 1)
        if not is_windowed(recipe):
            # a row of spans holds one document: two would need a mask between source and target
            return Examples(
                {"text": corpus.cut(d.seq_len - extra) if is_spans else corpus}, tokens=t.tokens, seed=recipe.seed,
                shuffle=shuffle, extra={"text": extra}, longest={"text": d.seq_len}, multiple=t.accumulate,
                most_rows=t.rows,
            )  # fmt: skip
        rows = t.rows or max(1, t.tokens // d.seq_len)
        if rows % t.accumulate:
            raise ConfigError(f"{rows} rows of a step cannot be divided into train.accumulate={t.accumulate} parts")
        how: dict[str, Any] = {"rows": rows, "seq_len": d.seq_len - extra, "seed": recipe.seed, "shuffle": shuffle}
        if is_pretraining:
            from cutaway.data.sentence_pairs import SentencePairs, sentence_ends

            return SentencePairs(corpus, sentence_ends(tokenizer), **how)
        windows = Windows(corpus, borders=d.borders, **how)
        return windows if isinstance(objective, NextToken) else WithoutLast(windows)


class WithoutLast:
    """Windows without the token after each, which only next-token prediction needs."""

    def __init__(self, windows: Windows) -> None:
        self.windows, self.steps, self.n_examples = windows, windows.steps, windows.n_examples

    def __call__(self, step: int) -> Batch:
        return {name: values[:, :-1] for name, values in self.windows(step).items()}
