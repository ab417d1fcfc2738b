"""`cutaway embed`: texts as vectors, so that texts of like meaning lie near each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.inside import Force
from cutaway.cli.shared.line_commands import (
    Cut,
    Input,
    Output,
    Resume,
    answer_lines,
    check_given,
    hint_at_files,
    of_model,
    of_words,
)
from cutaway.cli.shared.models import (
    In,
    Precision,
    Texts,
    Where,
    as_trained,
    chosen_precision,
    load_ready,
    tokenizer_for_text,
)
from cutaway.cli.shared.options import Json
from cutaway.cli.shared.tables import GAP, echo, grid, json_text, stdout
from cutaway.cli.shared.word_vectors import EMBEDDING, At, neighbours
from cutaway.errors import InputError
from cutaway.folders import check_file

if TYPE_CHECKING:
    import numpy as np


class Pool(StrEnum):
    """What of a text its vector is."""

    mean = "mean"
    first = "first"


WIDE = 64  # cells of a terminal that has room for numbers beside a text
How = Annotated[Pool, typer.Option("--pool", help="The mean of all tokens' states, or the first token's.")]
Near = Annotated[str | None, typer.Option("--near", metavar="WORD", help="Which words are near this one.")]
Analogous = Annotated[
    tuple[str, str, str] | None,
    typer.Option("--analogy", metavar="A B C", help="What is to C as B is to A: man woman king."),
]
Count = Annotated[int, typer.Option("--k", min=1, help="How many words, with --near and --analogy.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the vectors as a numpy array, text × d_model.")]


def embed(
    model: Where,
    texts: Texts = None,
    pool: How = Pool.mean,
    cut: Cut = None,
    out: Out = None,
    input: Input = None,
    output: Output = None,
    resume: Resume = False,
    precision: In = Precision.auto,
    near: Near = None,
    analogy: Analogous = None,
    at: At = EMBEDDING,
    k: Count = 10,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """One vector of length 1 for each text. Lines give lines of numbers, with --json texts do too.

    With --out the vectors of lines go there alone, unless --json or --output asks for them. --near and --analogy ask
    for words instead, and --model may then be a file of word vectors: GloVe, word2vec, .vec, .npy.
    """
    if near is not None or analogy is not None:
        if texts or input or output or resume or out:
            raise InputError("--near and --analogy answer with words: leave out texts, --input, --output and --out")
        neighbours(model, near, analogy, at, k, as_json)
        return
    asked = check_given(texts, input, output, resume)
    if resume and out:
        raise InputError("--resume goes on with lines, and an array is written whole: leave out --out or --resume")
    if out is not None:
        check_file(out, force=force)
    precision = chosen_precision(precision, model)
    loaded, found = load_ready(model, precision)

    import numpy as np

    from cutaway.decoding.embed import embed as answer

    tokenizer, trained = tokenizer_for_text(found, model), as_trained(model)

    def vectors(some: list[str], report: Callable[[int, int], None] = lambda done, total: None) -> "np.ndarray":
        return answer(loaded, tokenizer, some, pool=pool.value, cut=cut, as_trained=trained, report=report)

    d_model = vectors([]).shape[1]
    with _array(out, d_model) as keep:

        def lines(some: list[str], report: Callable[[int, int], None]) -> list[str]:
            found = of_words(some, lambda texts: vectors(texts, report))
            keep(np.stack([np.zeros(d_model, np.float32) if one is None else one for one in found]))
            return [_line(text, one, as_json) for text, one in zip(some, found, strict=True)]

        if not asked:
            settings = {"command": "embed", **of_model(model), "pool": pool, "cut": cut,
                        "precision": precision, "json": as_json}  # fmt: skip
            silent = Path("/dev/null") if out and not as_json else None
            answer_lines(lines, input, output or silent, resume, settings)
            return
        hint_at_files(asked)
        said = vectors(asked)
        keep(said)
        if as_json:
            for text, vector in zip(asked, said, strict=True):
                print(_line(text, vector, True))
        else:
            _show(asked, said)


@contextmanager
def _array(out: Path | None, d_model: int) -> Iterator[Callable[["np.ndarray"], None]]:
    """A numpy file that grows by some rows at a time; how many they are is written into its head at last."""
    import numpy as np

    from cutaway.files import replacing

    if out is None:
        yield lambda rows: None
        return
    n = 0
    with replacing(out) as temporary, temporary.open("wb") as file:

        def head() -> None:
            file.seek(0)
            said = {"descr": "<f4", "fortran_order": False, "shape": (n, d_model)}
            np.lib.format.write_array_header_1_0(file, said)  # leaves room for the digits of a growing number

        def keep(rows: "np.ndarray") -> None:
            nonlocal n
            n += len(rows)
            file.write(rows.astype("<f4").tobytes())

        head()
        yield keep
        head()


def _line(text: str, vector: "np.ndarray | None", as_json: bool) -> str:
    numbers = [] if vector is None else vector.tolist()
    if as_json:
        return json_text({"text": text, "vector": numbers})
    return " ".join(f"{x:.6g}" for x in numbers)


def _show(texts: list[str], vectors: "np.ndarray") -> None:
    """How like the first each is, the cosine of the angle between them, and, where there is room, a few numbers."""
    console, shown = stdout(), grid(header=True)
    columns = {"like the first": [f"{vector @ vectors[0]:.3f}" for vector in vectors]}
    if console.width >= WIDE:
        few = [" ".join(f"{x:+.3f}" for x in vector[:4]) + " …" for vector in vectors]
        columns[f"the first 4 of {vectors.shape[1]} numbers"] = few
    room = console.width
    for title, cells in columns.items():
        width = max(map(len, (title, *cells)))
        shown.add_column(title, width=width)
        room -= width + GAP
    shown.add_column("text")
    for text, *cells in zip(texts, *columns.values(), strict=True):
        shown.add_row(*cells, echo(text, room))
    console.print(shown)
