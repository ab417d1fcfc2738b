"""`cutaway inspect`: a text, or an image, through the model, with a look inside."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from cutaway.cli.shared.inside import (
    Force,
    Out,
    Which,
    check_output,
    open_model,
    options_of_folder,
    print_report,
    waiting,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.inside.reports.options import InspectOptions

Words = Annotated[list[str], typer.Argument(metavar="TEXT…", help="A sentence, or an image file; - reads stdin.")]

Whole = Annotated[bool, typer.Option("--whole", help="Take the text as one sentence; by default it is split.")]


def inspect(
    model: Which,
    text: Words,
    *,
    options: InspectOptions,
    whole: Whole = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What a model answers, and why: tokens, attribution, which parts wrote the answer, where the heads look.

    The answer is the next word, a translation, the words for blanks ([MASK]), a label (two texts with a tab between
    them) or the label of an image, depending on the model. A page (--out page.html) has all pictures, an .svg the one
    that --show names. --json has the numbers, and with --show heads every attention pattern. A text for a translator is
    split into sentences; --json then lists them as `sentences`.
    """
    check_output(out, force=force)
    given = sys.stdin.read().removesuffix("\n") if text == ["-"] else " ".join(text)
    loaded, tokenizer = open_model(model)

    from cutaway.cli.shared.models import tokenizer_for_text, warn_if_plain
    from cutaway.inside.model_kinds import kind_of
    from cutaway.inside.questions import spell_after
    from cutaway.inside.reports.inspect import inspect, inspect_sentences, split_sentences
    from cutaway.inside.reports.inspection import Inspection

    kind, options = kind_of(loaded), options_of_folder(options, model, loaded)
    if not kind.reads_images:
        tokenizer = tokenizer_for_text(tokenizer, model)
    if kind.continues:
        assert tokenizer is not None
        target, versus = (word and spell_after(tokenizer, given, word) for word in (options.target, options.versus))
        options = replace(options, target=target, versus=versus)
    if not whole and out is not None and out.suffix.lower() in (".svg", ".txt"):
        n = len(split_sentences(loaded, tokenizer, given, options))
        if n > 1:
            raise InputError(
                f"--out {out.name} holds one picture, and the text has {n} sentences: write a page (.html), give one "
                "sentence, or --whole"
            )
    with waiting("looking inside") as progress:
        look = inspect if whole else inspect_sentences
        found = look(loaded, tokenizer, given, progress=progress, name=str(model), options=options)
    if isinstance(found, Inspection) and found.image is not None:
        warn_if_plain(given, found.image)
    print_report(found, out, as_json=as_json)
