"""`cutaway embed`: texts as vectors; those of texts with similar meanings are close to each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cutaway.arguments import Options, Progress, option
from cutaway.cli.shared.line_commands import (
    CUT,
    LineOptions,
    answer_lines,
    fingerprint,
    given_texts,
    hint_at_files,
    nonblank_answers,
)
from cutaway.cli.shared.models import (
    In,
    Precision,
    Texts,
    Where,
    as_trained,
    load_ready,
    tokenizer_for_text,
)
from cutaway.cli.shared.options import Json
from cutaway.cli.shared.word_vectors import AT, EMBEDDING, show_neighbours
from cutaway.errors import InputError
from cutaway.folders import check_file
from cutaway.pictures.terminal_tables import GAP, grid, stdout
from cutaway.pictures.terminal_text import json_text, shown

if TYPE_CHECKING:
    import numpy as np


WIDE = 64  # columns of a terminal that has room for numbers beside a text


@dataclass(frozen=True, kw_only=True)
class VectorOptions(Options):
    """What the vectors are, and where they go."""

    pool: Literal["mean", "first"] = option("mean", "The mean of all tokens' states, or the first token's state.")
    cut: int | None = option(None, CUT, least=1)
    out: Path | None = option(None, "Write the vectors as a NumPy array, text × d_model.")
    force: bool = option(False, "Replace the file that is there, whatever it is.")


@dataclass(frozen=True, kw_only=True)
class WordOptions(Options):
    """Questions about words."""

    near: str | None = option(None, "Show the words nearest to this one.", metavar="WORD")
    analogy: tuple[str, str, str] | None = option(
        None, "Show what is to C as B is to A: man woman king.", metavar="A B C"
    )
    at: str = option(EMBEDDING, AT)
    k: int = option(10, "Number of words for --near and --analogy.", least=1)


def embed(
    model: Where,
    texts: Texts = None,
    *,
    vectors: VectorOptions,
    lines: LineOptions,
    precision: In = Precision.auto,
    words: WordOptions,
    as_json: Json = False,
) -> None:
    """Turn texts into vectors, or find the words nearest to a word.

    A vector has length 1. Each line of the input gives one line of numbers. With --out the vectors go to that file
    only, unless --json or --output is given, too. --near and --analogy show words instead; --model may then be a file
    of word vectors: GloVe, word2vec, .vec, .npy.
    """
    out = vectors.out
    if words.near is not None or words.analogy is not None:
        if texts or lines != LineOptions() or out:
            raise InputError("--near and --analogy show words: leave out texts, --input, --output and --out")
        show_neighbours(model, words.near, words.analogy, words.at, words.k, as_json)
        return
    texts = given_texts(texts, lines)
    _check_array(vectors, lines)
    loaded, found, precision = load_ready(model, precision)
    import numpy as np

    from cutaway.decoding.embed import embed as embed_texts

    tokenizer = tokenizer_for_text(found, model)
    how: dict[str, Any] = {"pool": vectors.pool, "cut": vectors.cut}
    embedded: Callable[..., np.ndarray] = partial(embed_texts, loaded, tokenizer, **how, as_trained=as_trained(model))
    d_model = embedded([]).shape[1]
    with _array(out, d_model) as append:

        def answer(some: list[str], progress: Progress) -> list[str]:
            found = nonblank_answers(some, lambda texts: embedded(texts, progress=progress))
            append(np.stack([np.zeros(d_model, np.float32) if one is None else one for one in found]))
            return [_line(text, one, as_json) for text, one in zip(some, found, strict=True)]

        if not texts:
            settings = {"command": "embed", **fingerprint(model), **how, "precision": precision, "json": as_json}
            if out and not as_json and lines.output is None:
                lines = replace(lines, output=Path("/dev/null"))
            answer_lines(answer, lines, settings)
            return
        hint_at_files(texts)
        rows = embedded(texts)
        append(rows)
        _show(texts, rows, as_json)


def _check_array(vectors: VectorOptions, lines: LineOptions) -> None:
    """Refuses a file that cannot be written, before the work is done."""
    if vectors.out is None:
        return
    if lines.resume:
        raise InputError("--resume continues lines, but an array is written as a whole: leave out --out or --resume")
    check_file(vectors.out, force=vectors.force)


@contextmanager
def _array(out: Path | None, d_model: int) -> Iterator[Callable[["np.ndarray"], None]]:
    """A NumPy file to which rows are appended; their number is written into its header at the end."""
    import numpy as np

    from cutaway.files import replacing

    if out is None:
        yield lambda rows: None
        return
    n = 0
    with replacing(out) as temporary, temporary.open("wb") as file:

        def write_header() -> None:
            file.seek(0)
            shape = {"descr": "<f4", "fortran_order": False, "shape": (n, d_model)}
            np.lib.format.write_array_header_1_0(file, shape)  # leaves room for the digits of a growing number

        def append(rows: "np.ndarray") -> None:
            nonlocal n
            n += len(rows)
            file.write(rows.astype("<f4").tobytes())

        write_header()
        yield append
        write_header()


def _line(text: str, vector: "np.ndarray | None", as_json: bool) -> str:
    numbers = [] if vector is None else vector.tolist()
    if as_json:
        return json_text({"text": text, "vector": numbers})
    return " ".join(f"{x:.6g}" for x in numbers)


def _show(texts: list[str], vectors: "np.ndarray", as_json: bool) -> None:
    """Each vector as JSON; or its cosine with the first and, where there is room, a few numbers."""
    if as_json:
        print(*(_line(text, vector, True) for text, vector in zip(texts, vectors, strict=True)), sep="\n")
        return
    console, table = stdout(), grid(header=True)
    columns = {"like the first": [f"{vector @ vectors[0]:.3f}" for vector in vectors]}
    if console.width >= WIDE:
        few = [" ".join(f"{x:+.3f}" for x in vector[:4]) + " …" for vector in vectors]
        columns[f"the first 4 of {vectors.shape[1]} numbers"] = few
    room = console.width
    for title, cells in columns.items():
        width = max(map(len, (title, *cells)))
        table.add_column(title, width=width)
        room -= width + GAP
    table.add_column("text")
    for text, *cells in zip(texts, *columns.values(), strict=True):
        table.add_row(*cells, _recognisable(text, room))
    console.print(table)


def _recognisable(text: str, room: int) -> Any:
    """A text that was given, on one line, there only to be recognised: what does not fit is cut."""
    from rich.text import Text

    line = Text(shown(" ".join(text.split())))
    line.truncate(max(1, room), overflow="ellipsis")
    return line
