"""Winograd schemas from files: WSC273, and the Definite Pronoun Resolution sets (Rahman & Ng 2012).

The bee landed on the flower because it had pollen.      a sentence
it                                                       its pronoun, or [MASK] where that is hidden already
The bee,the flower                                       who may be meant
the flower                                               who is
                                                         an empty line
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from cutaway.data.text_files import read_lines
from cutaway.errors import InputError
from cutaway.evaluation.winograd import Schema, standing

LINES = 5  # of a schema, with the empty one
POSSESSIVE = ("his", "its", "their", "my", "our", "your")  # not `her`, which is an object as often
LONGEST = 64  # characters that are read before a pronoun; no word of JOINS has half as many
JOINS = "because since but so and as when if while though although that after before until unless or".split()


def read_schemas(paths: Sequence[Path], limit: int | None = None) -> list[Schema] | None:
    """The first `limit` schemas of some files; None where the first file does not begin with one."""
    found: list[Schema] = []
    for path in paths:
        for line, block in _blocks(path, found):
            schema = _schema(block)
            if schema is None and not found:
                return None
            if schema is None:
                raise InputError(
                    f"{path}, line {line}: no schema ends here; one is a sentence, its pronoun, candidates with commas "
                    "between, the right one, and an empty line"
                )
            found.append(schema)
            if len(found) == limit:
                return found
    return found or None


def _blocks(path: Path, found: Sequence[Schema]) -> Iterator[tuple[int, list[str]]]:
    """What stands between empty lines, and where it ends; a file that is no text has none."""
    block: list[str] = []
    line = 0
    try:
        for line, text in enumerate(chain(read_lines(path), [""]), 1):
            block += [_plain(text)] if text.strip() else []
            if block and (not text.strip() or len(block) == LINES):  # a book's first paragraph may be a megabyte
                yield line - 1, block
                block = []
    except InputError:
        if found:
            raise


def _schema(block: Sequence[str]) -> Schema | None:
    if len(block) != LINES - 1:
        return None
    sentence, pronoun, names, right = block
    candidates = tuple(name.strip() for name in names.split(","))
    if len(candidates) < 2 or not all(candidates) or right not in candidates:
        return None
    place = _place(sentence, pronoun, candidates)
    if place is None:
        return None
    of_whom = "'s" if pronoun.lower() in POSSESSIVE else ""
    after = re.sub(r"^ +(?=[,.;:!?'])", "", of_whom + sentence[place + len(pronoun) :])
    named = pronoun if pronoun[:1].isalpha() else ""  # not [MASK]
    return Schema(sentence[:place], after, candidates, candidates.index(right), named)


def _place(sentence: str, pronoun: str, candidates: Sequence[str]) -> int | None:
    """Where the pronoun stands. Where it occurs more than once (51 of the 1,880 sentences of DPR, which does not say
    which is meant): behind both candidates, directly behind a conjunction, and the first such; else the first."""
    places = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", sentence)]
    named = [found[1] for name in candidates if (found := standing(sentence, name))]
    late = [place for place in places if place >= max(named, default=0)] or places
    joined = (place for place in late if _word_before(sentence, place).lower() in JOINS)
    return next(joined, late[0] if late else None)


def _word_before(sentence: str, place: int) -> str:
    """The word before a place, or the end of a long one: a pronoun may stand in a line ten thousand times, and the line
    should not be read as often."""
    return re.split(r"\W+", sentence[max(0, place - LONGEST) : place].rstrip())[-1]


def _plain(line: str) -> str:
    return " ".join(line.split())
