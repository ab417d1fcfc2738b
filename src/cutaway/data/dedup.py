"""Does the training text contain parts of the validation text? Another edition of a book is the same book.

    found = find_repeats(train, valid, "form_feed")
    found.left_out           # numbers of the training documents that repeat the validation text
    found.seen               # the share of the validation text that still stands in the others

Texts are compared by runs of twelve words, however they are spaced, broken into lines, capitalised or punctuated. What
anybody says in twelve words (a verse of the Bible, a licence) is no repetition: a document is left out where a tenth of
it stands in the validation text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cutaway.data.cache import cached, facts
from cutaway.data.text_files import Split, read_documents

RUN = 12  # words
STRIDE = 5  # words from one run of a training text to the next that is looked up; of the validation text all are known
MOST_RUNS = 2_000_000  # that are remembered: of a longer validation text every second one, or every third …
SHARE = 0.1  # of a document, from which on it is left out
TOLD = 0.01  # of the validation text, from which on people are told

WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Repeats:
    """Which parts of a validation text stand in a training text."""

    left_out: tuple[int, ...]  # documents, by their number in all files
    named: tuple[str, ...]  # the same for people: where they stand, and how much of them is repeated
    seen: float  # share of the validation text that the other documents have; 1 where all would have to be left out

    def messages(self) -> Iterator[str]:
        """Messages for people."""
        if self.left_out:
            one = len(self.left_out) == 1
            who = "1 training document repeats" if one else f"{len(self.left_out)} training documents repeat"
            more = "" if one else f" and {len(self.left_out) - 1} more"
            yield f"{who} the validation text and {'was' if one else 'were'} left out: {self.named[0]}{more}"
        if self.seen >= TOLD:
            yield f"{self.seen:.0%} of the validation text stands in the training text, too: its scores are too good"


def find_repeats(train: Sequence[Path], valid: Sequence[Path], split: Split, cache: Path | None = None) -> Repeats:
    """Looks through all files; what was found once is remembered in the cache."""
    settings = {"kind": "apart", "split": split, "train": len(train), "rule": [RUN, STRIDE, MOST_RUNS, SHARE]}

    def build(folder: Path) -> dict[str, Any]:
        return asdict(_look(train, valid, split))

    found = facts(cached([*train, *valid], settings, build, cache))
    return Repeats(tuple(found["left_out"]), tuple(found["named"]), found["seen"])


def _look(train: Sequence[Path], valid: Sequence[Path], split: Split) -> Repeats:
    known, every = _runs_of(valid, split)
    left_out, named, number = [], [], 0
    seen: set[int] = set()
    for path in train:
        for place, words in enumerate(_documents(path, split), start=1):
            runs = [run for run in _runs(words, STRIDE) if run % every == 0]
            shared = {run for run in runs if run in known}
            share = len(shared) / max(1, len(runs))
            if share >= SHARE:
                left_out.append(number)
                named.append(f"document {place} of {path.name} ({share:.0%} of it)")
            else:
                seen |= shared
            number += 1
    if len(left_out) == number:  # nothing would be left to learn from
        return Repeats((), (), 1.0)
    return Repeats(tuple(left_out), tuple(named), min(1.0, STRIDE * len(seen) / max(1, len(known))))


def _runs_of(valid: Sequence[Path], split: Split) -> tuple[set[int], int]:
    """All runs of the validation text, or each `every`th, so that they are few enough."""
    known: set[int] = set()
    every = 1
    for path in valid:
        for words in _documents(path, split):
            known.update(run for run in _runs(words, 1) if run % every == 0)
            while len(known) > MOST_RUNS:
                every *= 2
                known = {run for run in known if run % every == 0}
    return known, every


def _documents(path: Path, split: Split) -> Iterator[list[str]]:
    """The words of each document."""
    words: list[str] = []
    for piece in read_documents([path], split):
        words += WORD.findall(piece.text.casefold())
        if piece.ends:
            yield words
            words = []


def _runs(words: list[str], stride: int) -> Iterator[int]:
    """Each as a number, which is the same in every process."""
    for i in range(0, len(words) - RUN + 1, stride):
        yield int.from_bytes(blake2b(" ".join(words[i : i + RUN]).encode(), digest_size=8).digest())
