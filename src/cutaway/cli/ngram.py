"""`cutaway ngram`: an n-gram model of text files, of tokens or of their classes, and how well it tells other text."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Json, Split
from cutaway.cli.shared.tables import json_text
from cutaway.errors import InputError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cutaway.before.ngrams.ngram_folder import Counted
    from cutaway.before.ngrams.predictor import Predictor
    from cutaway.before.units import TextIds, Units


class Smoothing(StrEnum):
    """The SMOOTHINGS of `cutaway.before.ngrams.smoothing`; here so that --help need not import them."""

    kneser_ney = "kneser-ney"
    back_off = "back-off"


Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed (gzip, xz); or one model: what --out wrote."),
]
Order = Annotated[
    int | None, typer.Option("--order", min=1, max=7, help="Tokens of an n-gram, the next one included; else 3.")
]
Unit = Annotated[
    str | None, typer.Option("--unit", help="words, characters, bytes, or a model whose tokenizer cuts; else words.")
]
How = Annotated[
    Smoothing | None, typer.Option("--smoothing", help="What n-grams get that were never seen; else kneser-ney.")
]
ClassesWanted = Annotated[
    int | None, typer.Option("--classes", min=1, help="Put the tokens into so many Brown clusters; n-grams of those.")
]
Most = Annotated[
    int | None, typer.Option("--most", min=1, help="Classes: cluster so many of the most frequent tokens; else 10000.")
]
Mix = Annotated[
    Path | None,
    typer.Option("--mix", metavar="FILE", help="Classes: mix with n-grams of tokens, as fits this other text best."),
]
Test = Annotated[
    list[Path] | None, typer.Option("--test", metavar="FILE", help="Other text: how well is it told? Several times.")
]
SplitAt = Annotated[Split, typer.Option("--split", help="What parts the texts; n-grams do not cross their ends.")]
Start = Annotated[str, typer.Option("--start", help="What the sample begins with.")]
Length = Annotated[int, typer.Option("--max-tokens", min=0, help="Tokens of the sample; 0: none.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the sample.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the model: a folder, or model.arpa (of words).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the model that is there.")]


def ngram(
    files: Files,
    order: Order = None,
    unit: Unit = None,
    smoothing: How = None,
    classes: ClassesWanted = None,
    most: Most = None,
    mix: Mix = None,
    test: Test = None,
    split: SplitAt = Split.file,
    start: Start = "",
    max_tokens: Length = 30,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Count n-grams: what comes next, from the last few words; or from their classes.

    \b
    cutaway ngram novel.txt --order 5 --test other.txt --out build/novel
    cutaway ngram build/novel --start "it was" --seed 3
    cutaway ngram novel.txt --unit books --test other.txt
    cutaway ngram novel.txt --classes 100 --mix held-out.txt --test other.txt
    """
    _check(out, unit, classes, most, force)
    _check_mix(mix, files, classes, out)
    import time

    from cutaway.before.ngrams.arpa import arpa_words
    from cutaway.before.ngrams.ngram_folder import is_ngram_folder, read_ngram_folder, write_cut, write_ngram_folder
    from cutaway.before.units import read_ids, units_of
    from cutaway.cli.ngram_data import as_dict
    from cutaway.cli.ngram_view import many, show_ngrams
    from cutaway.cli.shared.inside import waiting

    text, begin = None, time.perf_counter()
    _only_texts(files, test or [], mix)
    if is_ngram_folder(files[0]):
        chosen = {"order": order, "unit": unit, "smoothing": smoothing, "classes": classes, "out": out}
        _only_read(files[0], [name for name, value in chosen.items() if value is not None])
        model, cut = read_ngram_folder(files[0])
    else:
        cut = units_of(unit or "words")
        with waiting("reading") as report:
            text = read_ids(cut, files, split=split.value, report=report)
    tests = [read_ids(cut, [path], split=split.value, new=False) for path in test or []]
    held_out = None if mix is None else read_ids(cut, [mix], split=split.value, new=False)
    if strange := cut.strange(start):
        known = many(len(cut.names) - len({cut.unknown, cut.end} - {None}), f"different {cut.unit}")
        raise InputError(f"--start: {', '.join(strange)} not among the {known} of the model")
    asked = cut.ids(start, False).tolist()
    if text is not None:
        if out is not None and out.suffix == ".arpa":
            arpa_words(cut.names, cut.end)  # refused now, not when all is counted
        with _written(out) as folder, waiting("clustering" if classes else "counting") as report:
            model = _trained(text, cut, order or 3, smoothing, classes, most, None if classes else folder, report)
            if folder is not None:
                if classes:
                    model.write(folder)
                write_cut(model, cut, folder)
        if out is not None and folder is None:
            write_ngram_folder(model, cut, out)
    told = model if held_out is None or text is None else _mixed(text, cut, model, held_out, smoothing)
    said = cut.join(told.generate(asked, seed=seed, limit=max_tokens, never=cut.unknown)) if max_tokens else None
    learnt = [] if text is None else files
    found = as_dict(model, told, cut, text, list(zip(test or [], tests, strict=True)), learnt)
    found |= {"sample": said, "out": None if out is None else str(out), "seconds": time.perf_counter() - begin}
    if as_json:
        print(json_text(found))
    else:
        show_ngrams(found, None if held_out is None else len(held_out.ids))


def _written(out: Path | None) -> "AbstractContextManager[Path | None]":
    """A new folder, which takes its place when the model is whole; an ARPA file is written at the end."""
    from contextlib import nullcontext

    from cutaway.before.ngrams.ngram_folder import KIND
    from cutaway.folders import replacing_folder

    return nullcontext() if out is None or out.suffix == ".arpa" else replacing_folder(out, KIND)


def _check_mix(mix: Path | None, files: list[Path], classes: int | None, out: Path | None) -> None:
    if mix is None:
        return
    if classes is None:
        raise InputError("--mix is for --classes: say how many")
    if out is not None:
        raise InputError("--mix and --out: a mixture is not written; write the classes, or the n-grams, alone")
    if mix.resolve() in [path.resolve() for path in files]:
        raise InputError(f"--mix {mix} is what both models learn from, and the n-grams know it by heart: name another")


def _check(out: Path | None, unit: str | None, classes: int | None, most: int | None, force: bool) -> None:
    """Nothing is read before it is clear that it may be written."""
    if classes is None and most is not None:
        raise InputError("--most is for --classes: say how many")
    if out is None:
        return
    from cutaway.before.ngrams.arpa import is_arpa as named_arpa
    from cutaway.before.ngrams.ngram_folder import KIND
    from cutaway.files import check_writable
    from cutaway.folders import check_folder

    is_arpa = out.suffix == ".arpa"
    if named_arpa(out) and not is_arpa:
        raise InputError(f"--out {out}: an ARPA file is written unpacked; name it {out.stem}")
    if is_arpa and (classes or unit not in (None, "words")):
        odd = "classes" if classes else f"--unit {unit}"
        raise InputError(f"--out {out}: an ARPA file is one of words, with no place for {odd}; name a folder")
    for folder in [out.parent] if is_arpa or os.path.isfile(out) else [out, out.parent]:
        check_writable(folder)
    if out.exists() and out.is_dir() == is_arpa:
        raise InputError(f"--out {out} is a {'folder' if out.is_dir() else 'file'}: an ARPA file ends in .arpa")
    if not out.parent.is_dir() and is_arpa:
        raise InputError(f"--out {out}: there is no folder {out.parent}")
    if not is_arpa:
        check_folder(out, KIND, force=force, by="--force", name="--out")
    elif out.exists() and not force:
        raise InputError(f"--out {out} is there: name another, or replace it with --force")


def _only_texts(files: list[Path], test: list[Path], mix: Path | None) -> None:
    """The words of a model's file would be counted as well."""
    from cutaway.before.ngrams.ngram_folder import is_ngram_folder

    for path in files if len(files) > 1 else []:
        if is_ngram_folder(path):
            raise InputError(f"{path} is a model, and no text to count: name it alone, or texts alone")
    for option, path in [*(("--test", path) for path in test), *([("--mix", mix)] if mix else [])]:
        if is_ngram_folder(path):
            raise InputError(f"{option} {path} is a model: name a text")


def _only_read(path: Path, given: list[str]) -> None:
    if given:
        raise InputError(f"{path} is a model, and has its own numbers: leave out --{given[0]}, or name a text")


def _trained(
    text: "TextIds",
    cut: "Units",
    order: int,
    smoothing: Smoothing | None,
    classes: int | None,
    most: int | None,
    folder: Path | None,
    report: Any,
) -> "Counted":
    from cutaway.before.ngrams.brown_clusters import MOST
    from cutaway.before.ngrams.ngram_of_classes import train_class_ngrams
    from cutaway.before.ngrams.smoothing import train_ngrams

    size, how = len(cut.names), (smoothing or Smoothing.kneser_ney).value
    if classes is None:
        return train_ngrams(text.ids, size, order, end=cut.end, smoothing=how, folder=folder)
    most = max(MOST, classes) if most is None else most
    return train_class_ngrams(text.ids, size, order, classes, end=cut.end, smoothing=how, most=most, report=report)


def _mixed(
    text: "TextIds", cut: "Units", classes: "Counted", held_out: "TextIds", smoothing: Smoothing | None
) -> "Predictor":
    from cutaway.before.ngrams.mixture import fitted
    from cutaway.before.ngrams.smoothing import train_ngrams

    how = (smoothing or Smoothing.kneser_ney).value
    tokens = train_ngrams(text.ids, len(cut.names), classes.order, end=cut.end, smoothing=how)
    return fitted([tokens, classes], held_out.ids)
