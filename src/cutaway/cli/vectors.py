"""`cutaway vectors`: word vectors of text files, by skip-gram."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cutaway.before.options import SkipGramOptions
from cutaway.cli.shared.options import Json, Split
from cutaway.errors import InputError
from cutaway.pictures.terminal_text import json_text

FEW = 1_000_000  # words, below which many neighbours are due to chance

Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed with gzip or xz.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for vectors.npy and words.txt.")]
Unit = Annotated[str, typer.Option("--unit", help="words, or a model whose tokenizer splits the text.")]
SplitAt = Annotated[Split, typer.Option("--split", help="What separates the texts; no window crosses their ends.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the vectors that are in the folder.")]


def vectors(
    files: Files,
    out: Out,
    options: SkipGramOptions,
    unit: Unit = "words",
    split: SplitAt = Split.file,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train word vectors by skip-gram: words that occur in similar contexts get similar vectors.

    \b
    cutaway vectors novels/*.txt --out build/vectors --epochs 5
    cutaway embed --model build/vectors --near king
    cutaway embed --model build/vectors --analogy man woman king
    cutaway evaluate build/vectors questions-words.txt
    """
    _check(out, unit, force)
    import time

    from cutaway.before.units import read_ids, units_of
    from cutaway.before.vectors.skip_gram import train_skip_gram
    from cutaway.cli.shared.inside import waiting

    cut = units_of(unit)
    with waiting("reading") as progress:
        text = read_ids(cut, files, split=split.value, progress=progress)
    begin = time.perf_counter()
    with waiting("learning") as progress:
        model = train_skip_gram(text.ids, len(cut.names), options, end=cut.end, progress=progress)
    seconds = time.perf_counter() - begin
    model.save(out, cut.names)
    found = {
        "out": str(out),
        "words": len(model.tokens),
        "d": options.d,
        "read": len(text.ids) - text.texts,
        "texts": text.texts,
        "epochs": options.epochs,
        "seconds": round(seconds, 1),
        "first": [cut.names[i] for i in model.tokens[:8]],
        "too_little": len(text.ids) < FEW,
    }
    print(json_text(found)) if as_json else _show(found, unit)


def _check(out: Path, unit: str, force: bool) -> None:
    """Refuses a folder that cannot be written, before anything is read."""
    from cutaway.files import check_writable
    from cutaway.folders import VECTORS, check_folder

    if unit in ("characters", "bytes"):
        raise InputError(f"--unit {unit}: vectors are of words, or of a model's tokens")
    if not os.path.isfile(out):
        check_writable(out)
    check_folder(out, VECTORS, force=force, by="--force", name="--out")


def _show(found: dict[str, Any], unit: str) -> None:
    from cutaway.cli.ngram_view import many, print_indented
    from cutaway.pictures.terminal_text import shown

    name = "words" if unit == "words" else "tokens"
    read = f"{many(found['read'], name)} in {many(found['texts'], 'texts')}"
    lines = [
        f"read   {read}, {many(found['epochs'], 'times')} in {found['seconds']} s",
        f"wrote  {found['out']}: {many(found['words'], name)}, {many(found['d'], 'numbers')} each",
        f"first  {' '.join(map(shown, found['first']))}",
    ]
    if found["too_little"]:
        lines.append(f"       too little to mean much: below {FEW:,} {name} many neighbours are chance")
    lines.append(f"next   cutaway embed --model {found['out']} --near {shown(found['first'][0])}")
    print_indented(lines, 7)
