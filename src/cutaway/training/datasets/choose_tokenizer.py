"""The tokenizer of a run: from a file, from the starting model, or trained on the data once and cached."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cutaway.data.cache import cached
from cutaway.errors import ConfigError
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.held_out import holds_out, paths_of
from cutaway.training.datasets.training_data import Note
from cutaway.training.recipe import Recipe, directions_of
from cutaway.training.tasks import task_of

WORD_PIECES = ("bpe", "wordpiece", "unigram")  # whose vocabularies have a size to choose


def choose_tokenizer(
    recipe: Recipe, start: Tokenizer | None, texts: Callable[[], Iterator[str]], note: Note
) -> Tokenizer:
    """`start` is the starting model's tokenizer, `texts` what a new one is trained on."""
    t = recipe.tokenizer
    if t.file is not None:
        return Tokenizer.load(Path(t.file))
    if t.kind is not None:
        return _train_tokenizer(recipe, texts, note)
    if start is None:
        raise ConfigError("[tokenizer] needs a `file`, or a `kind` to train: no starting model brings one")
    return start


def _train_tokenizer(recipe: Recipe, texts: Callable[[], Iterator[str]], note: Note) -> Tokenizer:
    t, task = recipe.tokenizer, task_of(recipe)
    kind = t.kind or ""
    tags = sorted({target for _, target in directions_of(recipe)})
    vocab_size = 8000 if t.vocab_size is None and kind in WORD_PIECES else t.vocab_size
    settings: dict[str, Any] = {
        "kind": "tokenizer", "tokenizer": kind, "vocab_size": vocab_size, "lowercase": t.lowercase, "tags": tags,
        "data": repr(recipe.data), "objective": recipe.objective.kind,
    }  # fmt: skip
    settings |= {"seed": recipe.seed} if holds_out(recipe.data) else {}  # it decides what is held out

    def build(folder: Path) -> dict[str, Any]:
        from cutaway.tokens.tokenizer_training import train_tokenizer

        note(f"training a {kind} tokenizer")
        tokenizer = train_tokenizer(
            texts(), kind=kind, vocab_size=vocab_size, lowercase=t.lowercase, tags=tags,
            mask=task.mask and kind != "wordpiece", special=list(task.sentinels),
        )  # fmt: skip
        tokenizer.save(folder)
        return {"vocab_size": tokenizer.vocab_size}

    return Tokenizer.load(cached(paths_of(recipe, recipe.data.train), settings, build))


def special_ids(tokenizer: Tokenizer, *, starts: bool = True) -> dict[str, Any]:
    """A model's settings that follow from its tokenizer; `starts`: its sequences begin with <sos>."""
    settings: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "pad_id": tokenizer.pad_id}
    if starts and tokenizer.bos_id is not None:
        settings["start_id"] = tokenizer.bos_id
    if tokenizer.eos_id is not None:
        settings["end_ids"] = [tokenizer.eos_id]
    return settings
