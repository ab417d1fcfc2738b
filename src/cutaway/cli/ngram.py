"""`cutaway ngram`: trains an n-gram model of tokens or of their classes, and scores other text with it."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.before.options import NGramOptions, Smoothing
from cutaway.cli.shared.options import Json, Split
from cutaway.errors import InputError
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cutaway.arguments import Progress
    from cutaway.before.ngrams.ngram_folder import Counted
    from cutaway.before.ngrams.predictor import Predictor
    from cutaway.before.units import TextIds, Units


KNESER_NEY = Smoothing.kneser_ney
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES", help="Text in UTF-8, plain or packed (gzip, xz); or one model that --out wrote."),
]
Mix = Annotated[
    Path | None,
    typer.Option(
        "--mix",
        metavar="FILE",
        help="With --classes: mix with n-grams of tokens, as fits this other text best.",
    ),
]
Test = Annotated[
    list[Path] | None, typer.Option("--test", metavar="FILE", help="Other text to be scored. May be repeated.")
]
SplitAt = Annotated[Split, typer.Option("--split", help="What separates the texts; n-grams do not cross their ends.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the model to a folder, or to model.arpa (of words).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the model that is there.")]


def ngram(
    files: Files,
    options: NGramOptions,
    mix: Mix = None,
    test: Test = None,
    split: SplitAt = Split.file,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train an n-gram model, of tokens or of their classes, and score other text with it.

    \b
    cutaway ngram novel.txt --order 5 --test other.txt --out build/novel
    cutaway ngram build/novel --start "it was" --seed 3
    cutaway ngram novel.txt --unit books --test other.txt
    cutaway ngram novel.txt --classes 100 --mix held-out.txt --test other.txt
    """
    from cutaway.before.ngrams.ngram_folder import is_ngram_folder
    from cutaway.before.units import read_ids, units_of
    from cutaway.cli.ngram_data import as_dict
    from cutaway.cli.ngram_view import show_ngrams
    from cutaway.cli.shared.inside import waiting

    text, begin = None, time.perf_counter()
    _check(out, options, force)
    _check_mix(mix, files, options.classes, out)
    _only_texts(files, test or [], mix)
    if is_ngram_folder(files[0]):
        model, cut = _read_model(files[0], options, out)
    else:
        cut = units_of(options.unit or "words")
        with waiting("reading") as progress:
            text = read_ids(cut, files, split=split.value, progress=progress)
    tests = [read_ids(cut, [path], split=split.value, new=False) for path in test or []]
    held_out = None if mix is None else read_ids(cut, [mix], split=split.value, new=False)
    start = _start_ids(cut, options.start)
    if text is not None:
        model = _train_and_write(text, cut, options, out)
    scorer = model if held_out is None or text is None else _mix(text, cut, model, held_out, options)
    sample = cut.join(scorer.generate(start, seed=options.seed, limit=options.max_tokens, never=cut.unknown))
    learnt = [] if text is None else files
    found = as_dict(model, scorer, cut, text, list(zip(test or [], tests, strict=True)), learnt)
    found |= {"sample": sample if options.max_tokens else None, "out": None if out is None else str(out)}
    found["seconds"] = time.perf_counter() - begin
    if as_json:
        print(json_text(found))
    else:
        show_ngrams(found, None if held_out is None else len(held_out.ids))


def _start_ids(cut: "Units", start: str) -> list[int]:
    from cutaway.cli.ngram_view import many

    if unknown := cut.unknown_in(start):
        known = many(len(cut.names) - len({cut.unknown, cut.end} - {None}), f"different {cut.unit}")
        raise InputError(f"--start: {', '.join(unknown)} not among the {known} of the model")
    return cut.ids(start, False).tolist()


def _train_and_write(text: "TextIds", cut: "Units", options: NGramOptions, out: Path | None) -> "Counted":
    """The n-grams, or classes, of a text, in a folder or an ARPA file if `out` names one."""
    from cutaway.before.ngrams.arpa import arpa_words
    from cutaway.before.ngrams.ngram_folder import write_cut, write_ngram_folder
    from cutaway.cli.shared.inside import waiting

    classes = options.classes
    if out is not None and out.suffix == ".arpa":
        arpa_words(cut.names, cut.end)  # refused now, not after counting
    with _written(out) as folder, waiting("clustering" if classes else "counting") as progress:
        model = _train(text, cut, options, None if classes else folder, progress)
        if folder is not None:
            if classes:
                model.write(folder)
            write_cut(model, cut, folder)
    if out is not None and folder is None:
        write_ngram_folder(model, cut, out)
    return model


def _written(out: Path | None) -> "AbstractContextManager[Path | None]":
    """A new folder, which is put in place when the model is complete; an ARPA file is written at the end."""
    from contextlib import nullcontext

    from cutaway.before.ngrams.ngram_folder import KIND
    from cutaway.folders import replacing_folder

    return nullcontext() if out is None or out.suffix == ".arpa" else replacing_folder(out, KIND)


def _check_mix(mix: Path | None, files: list[Path], classes: int | None, out: Path | None) -> None:
    if mix is None:
        return
    if classes is None:
        raise InputError("--mix needs --classes")
    if out is not None:
        raise InputError("--mix and --out: a mixture cannot be written; write the classes, or the n-grams, alone")
    if mix.resolve() in [path.resolve() for path in files]:
        raise InputError(f"--mix {mix} is the training text, which the n-grams know by heart: name another")


def _check(out: Path | None, options: NGramOptions, force: bool) -> None:
    """Refuses options that do not go together, and a place that cannot be written, before anything is read."""
    classes, unit = options.classes, options.unit
    if classes is None and options.most is not None:
        raise InputError("--most needs --classes")
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
        raise InputError(f"--out {out}: an ARPA file holds n-grams of words, not {odd}; name a folder")
    for folder in [out.parent] if is_arpa or os.path.isfile(out) else [out, out.parent]:
        check_writable(folder)
    if out.exists() and out.is_dir() == is_arpa:
        raise InputError(f"--out {out} is a {'folder' if out.is_dir() else 'file'}: an ARPA file ends in .arpa")
    if not out.parent.is_dir() and is_arpa:
        raise InputError(f"--out {out}: there is no folder {out.parent}")
    if not is_arpa:
        check_folder(out, KIND, force=force, by="--force", name="--out")
    elif out.exists() and not force:
        raise InputError(f"--out {out} exists: name another file, or replace it with --force")


def _only_texts(files: list[Path], test: list[Path], mix: Path | None) -> None:
    """Refuses a model among texts: the words in its files would be counted."""
    from cutaway.before.ngrams.ngram_folder import is_ngram_folder

    for path in files if len(files) > 1 else []:
        if is_ngram_folder(path):
            raise InputError(f"{path} is a model and not a text: give it alone, or texts alone")
    for option, path in [*(("--test", path) for path in test), *([("--mix", mix)] if mix else [])]:
        if is_ngram_folder(path):
            raise InputError(f"{option} {path} is a model: name a text")


def _read_model(path: Path, options: NGramOptions, out: Path | None) -> "tuple[Counted, Units]":
    from cutaway.before.ngrams.ngram_folder import read_ngram_folder

    own = {name: getattr(options, name) for name in ("order", "unit", "smoothing", "classes")} | {"out": out}
    if chosen := [name for name, value in own.items() if value is not None]:
        raise InputError(f"{path} is a model with numbers of its own: leave out --{chosen[0]}, or give a text")
    return read_ngram_folder(path)


def _train(
    text: "TextIds", cut: "Units", options: NGramOptions, folder: Path | None, progress: "Progress"
) -> "Counted":
    from cutaway.before.ngrams.brown_clusters import MOST
    from cutaway.before.ngrams.ngram_of_classes import train_class_ngrams
    from cutaway.before.ngrams.smoothing import train_ngrams

    size, order, n, how = len(cut.names), options.order or 3, options.classes, options.smoothing or KNESER_NEY
    if n is None:
        return train_ngrams(text.ids, size, order, end=cut.end, smoothing=how, folder=folder)
    most = options.most or max(MOST, n)
    return train_class_ngrams(text.ids, size, order, n, end=cut.end, smoothing=how, most=most, progress=progress)


def _mix(text: "TextIds", cut: "Units", classes: "Counted", held_out: "TextIds", options: NGramOptions) -> "Predictor":
    """The classes, interpolated with n-grams of tokens with the weights that fit the held-out text best."""
    from cutaway.before.ngrams.mixture import fit_mixture
    from cutaway.before.ngrams.smoothing import train_ngrams

    how = options.smoothing or KNESER_NEY
    tokens = train_ngrams(text.ids, len(cut.names), classes.order, end=cut.end, smoothing=how)
    return fit_mixture([tokens, classes], held_out.ids)
