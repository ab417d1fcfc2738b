"""Tests of word vectors from files, recognised by how they begin.

: capital-common-countries        analogies in sections (questions-words.txt)
Athens Greece Baghdad Iraq

tiger	cat	7.35                  two words and a number (WordSim-353, SimLex-999); lines with # say something else
"""

from collections.abc import Sequence
from pathlib import Path

from cutaway.data.text_files import read_lines
from cutaway.errors import InputError
from cutaway.evaluation.word_similarity import Analogy, Likeness


def read_word_test(paths: Sequence[Path], limit: int | None = None) -> list[Analogy] | list[Likeness] | None:
    """The first `limit` questions of one file; None if it is no such test."""
    if len(paths) != 1 or not paths[0].is_file():
        return None
    (path,) = paths
    try:
        first = next((line for line in read_lines(path) if line.strip() and not line.startswith("#")), "")
    except InputError:
        return None
    if first.startswith(": "):
        return _analogies(path)[:limit]
    return _likenesses(path)[:limit] if _likeness(first) else None


def _analogies(path: Path) -> list[Analogy]:
    found, section = [], ""
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            a, b, c, wanted = words
            found.append(Analogy(a, b, c, wanted, section))
        elif words:
            raise InputError(f"{path}, line {number}: {len(words)} words; an analogy has four")
    return found


def _likenesses(path: Path) -> list[Likeness]:
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            likeness = _likeness(line)
            if likeness is None:
                raise InputError(f"{path}, line {number}: expected two words and a number, with tabs between")
            found.append(likeness)
    return found


def _likeness(line: str) -> Likeness | None:
    try:
        a, b, said = line.split("\t")
        return Likeness(a, b, float(said)) if len(f"{a} {b}".split()) == 2 else None  # sentences are none
    except ValueError:
        return None
