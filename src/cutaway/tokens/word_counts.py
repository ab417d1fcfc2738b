"""Counts the words of texts in one pass, without keeping the texts."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from tokenizers import Tokenizer as Backend
from tokenizers import models, trainers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from cutaway.errors import InputError

BATCH = 1 << 20  # characters per call of the library: enough for every core, few enough to hold in memory

Counts = list[tuple[str, int]]  # the most frequent first, equals in the order of their characters


def count_words(texts: Iterable[str], normalizer: Normalizer | None, split: PreTokenizer) -> Counts:
    """How often each word occurs. The library normalises, splits and counts, on all cores."""
    backend = Backend(models.WordLevel())
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = split
    trainer = trainers.WordLevelTrainer(vocab_size=1, show_progress=False)
    backend.train_from_iterator(text_batches(texts), trainer)
    # The library reveals the counts only in the trainer's state, as it would be pickled.
    words: dict[str, int] = json.loads(trainer.__getstate__())["WordLevelTrainer"]["words"]
    return by_count(words)


def by_count(counts: dict[str, int], at_least: int = 1) -> Counts:
    """Entries that occur at least so often, the most frequent first; ties are sorted, since a hash map has no order."""
    return sorted(((entry, n) for entry, n in counts.items() if n >= at_least), key=lambda entry: (-entry[1], entry[0]))


def text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts, about a million characters each; an error where there is no text at all."""
    if isinstance(texts, str):
        raise InputError("expected a list of texts, not one text: put it in a list")
    empty, batch, length = True, list[str](), 0
    for text in texts:
        _check(text)
        if not text:
            continue
        empty = False
        batch.append(text)
        length += len(text)
        if length >= BATCH:
            yield batch
            batch, length = [], 0
    if empty:
        raise InputError("the texts to train on are empty")
    if batch:
        yield batch


def repeated_words(words: Counts) -> Iterator[list[str]]:
    """A text with these numbers of these words, for a trainer that only reads text."""
    line = (chunk for word, n in words for chunk in _repeat(word, n))
    while batch := list(islice(line, 1000)):
        yield batch


def _repeat(word: str, n: int, most: int = 1 << 12) -> Iterator[str]:
    for done in range(0, n, most):
        yield f"{word} " * min(most, n - done)


def _check(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"texts to train on are strings, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("only valid Unicode text can be read: no lone surrogates") from None
