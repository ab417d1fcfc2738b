"""What `embed` and `evaluate` share about word vectors, from a file or from a model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.errors import InputError
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.evaluation.report import Report
    from cutaway.inside.word_vectors import Neighbours, WordVectors

EMBEDDING = "embedding"
AT = "Vectors of words: embedding, unembedding, or a tap such as decoder.3.residual_after."


def word_vectors(path: Path, at: str, words: Iterable[str]) -> "WordVectors":
    """Word vectors from a file; or those of a model, for its own words and for these."""
    from cutaway.checkpoints.word_vectors import is_word_vectors
    from cutaway.inside.word_vectors import WordVectors

    if is_word_vectors(path):
        if at != EMBEDDING:
            raise InputError(f"--at {at} is for models, and {path} is a file of word vectors")
        return WordVectors.read(path)
    from cutaway.checkpoints import load, tokenizer_of
    from cutaway.cli.shared.models import tokenizer_for_text

    model = load(path)  # before its tokenizer, so that the error for a file of another kind comes first
    return WordVectors.of_model(model, tokenizer_for_text(tokenizer_of(path), path), at, words)


def score_words(path: Path, questions: Sequence[Any], at: str, most: int, **options: Any) -> "Report":
    """Scores analogies, or the similarity of pairs of words."""
    import time
    from dataclasses import replace

    from cutaway.checkpoints.word_vectors import is_word_vectors
    from cutaway.evaluation.word_similarity import Analogy, analogies, likeness

    begin = time.perf_counter()
    asked = dict.fromkeys(word for each in questions for word in _words(each))
    vectors = word_vectors(path, at, asked)
    told = {"words": len(vectors.words), "at": None if is_word_vectors(path) else at}
    score: Any = analogies if isinstance(questions[0], Analogy) else likeness
    found = score(vectors, questions, most=most, **options)
    return replace(found, settings={**told, **found.settings}, seconds=time.perf_counter() - begin)


def show_neighbours(
    path: Path, near: str | None, analogy: tuple[str, str, str] | None, at: str, k: int, as_json: bool
) -> None:
    """Prints the words nearest to a word, or the words that complete an analogy."""
    if near is not None and analogy is not None:
        raise InputError("--near and --analogy: give one of the two")
    vectors = word_vectors(path, at, analogy or (near or "",))
    found = vectors.nearest(near or "", k) if analogy is None else vectors.analogy(*analogy, k=k)
    if as_json:
        print(json_text({"source": vectors.source, "words": len(vectors.words), **found.to_dict()}))
    else:
        _show(vectors, found)


def _show(vectors: "WordVectors", found: "Neighbours") -> None:
    from rich.text import Text

    from cutaway.pictures.terminal_tables import grid, stdout

    console, shown = stdout(), grid(header=True)
    title = f"near {found.asked[0]}" if len(found.asked) == 1 else "{} : {} :: {} : ?".format(*found.asked)
    shown.add_column(found.by, justify="right")
    shown.add_column(title)
    for word, score in found.found:
        shown.add_row(f"{score:.3f}", Text(word))
    console.print(shown)
    console.print(Text(" · ".join(filter(None, (found.note, f"{len(vectors.words):,} words", vectors.source))), "dim"))


def _words(question: Any) -> list[str]:
    names = ("a", "b", "c", "wanted") if hasattr(question, "wanted") else ("a", "b")
    return [getattr(question, name) for name in names]
