"""`cutaway translate`: words, a pipe or a file in; the same lines in another language out."""

import hashlib
import sys
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.line_commands import Input, Output, Resume, answer_lines, check_given, hint_at_files, of_model
from cutaway.cli.shared.models import In, Precision, Where, chosen_precision, load_ready, tokenizer_for_text
from cutaway.cli.shared.options import Json
from cutaway.cli.shared.tables import json_text, show_alignment
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.decoding.translate import Translation


Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT…|-]", help="What to translate; - reads lines.")]
To = Annotated[str | None, typer.Option("--to", help="The language that is wanted, where the model knows several.")]
Beam = Annotated[int, typer.Option("--beam", min=1, help="How many beginnings are kept.")]
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help="score = log p / length^penalty.")]
Prune = Annotated[
    float | None, typer.Option("--prune", help="Give up what is this far behind the best, in log p, such as 2: faster.")
]
NBest = Annotated[int, typer.Option("--nbest", min=1, help="How many translations of each text.")]
Scores = Annotated[bool, typer.Option("--scores", help="Say how likely the model finds them.")]
Align = Annotated[bool, typer.Option("--align", help="Say which word comes from which.")]
Prefix = Annotated[str | None, typer.Option("--prefix", help="How each translation has to begin.")]
Term = Annotated[
    list[str] | None, typer.Option("--term", help="WORD=TRANSLATION that has to be used; may be repeated.")
]
Terms = Annotated[Path | None, typer.Option("--terms", help="A file of such words: word, tab, translation.")]
Whole = Annotated[bool, typer.Option("--whole", help="Take each line for one sentence; else lines are split.")]


def translate(
    texts: Texts = None,
    *,
    model: Where,
    to: To = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 1.0,
    prune: Prune = None,
    nbest: NBest = 1,
    scores: Scores = False,
    align: Align = False,
    prefix: Prefix = None,
    term: Term = None,
    terms: Terms = None,
    whole: Whole = False,
    input: Input = None,
    output: Output = None,
    resume: Resume = False,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Translate texts, a pipe or a file; every line of the input gives one line."""
    texts = check_given(texts, input, output, resume)
    if nbest > beam:
        raise InputError(f"--nbest {nbest} needs a --beam of at least {nbest}")
    if not isfinite(length_penalty):
        raise InputError(f"--length-penalty {length_penalty} is no finite number")
    if prune is not None and not prune >= 0:
        raise InputError(f"--prune {prune} is no number of at least 0")
    glossary = _terms(term or [], terms)
    options = {"to": to, "beam": beam, "length_penalty": length_penalty, "prune": prune, "n_best": nbest,
               "aligned": align, "prefix": prefix, "terms": glossary, "split": not whole}  # fmt: skip
    precision = chosen_precision(precision, model)
    answers = _answers(model, precision, options)
    if texts:
        hint_at_files(texts)
        found = answers(texts, lambda done, total: None)
        readable = sys.stdout.isatty() and not as_json
        for one in found:
            if readable:
                _show(one, scores, align)
            else:
                print(_line(one, scores, align, as_json))
        return
    settings = {**of_model(model), **options, "terms": _fingerprint(glossary), "scores": scores,
                "precision": precision.value, "json": as_json}  # fmt: skip

    def answer(lines: list[str], report: Callable[[int, int], None]) -> list[str]:
        return [_line(one, scores, align, as_json) for one in answers(lines, report)]

    answer_lines(answer, input, output, resume, settings, unit="sentences")


def _answers(model: Path, precision: Precision, options: dict[str, Any]) -> Callable[..., "list[Translation]"]:
    loaded, found = load_ready(model, precision)

    from cutaway.decoding.rules.terms import Glossary
    from cutaway.decoding.translate import prefix_ids, tag_for, translations
    from cutaway.model.model import EncoderDecoderModel

    if not isinstance(loaded, EncoderDecoderModel):
        raise InputError(
            f"{model} is a {loaded.config.family} model, which does not translate: `cutaway models` lists what does"
        )
    tokenizer = tokenizer_for_text(found, model)
    tag_for(tokenizer, options["to"])  # wrong words are refused before a file is begun
    prefix_ids(tokenizer, options["prefix"])
    options = {**options, "terms": Glossary(options["terms"], tokenizer)}
    return lambda texts, report: translations(loaded, tokenizer, texts, report=report, **options)


def _terms(options: list[str], file: Path | None) -> dict[str, str]:
    """Words and their translations, from a file and from the options, which count more."""
    found: dict[str, str] = {}
    for option in options:
        word, equals, term = (part.strip() for part in option.partition("="))
        if not equals:
            raise InputError(f"--term {option!r} has no translation: write WORD=TRANSLATION")
        if found.setdefault(word, term) != term:
            raise InputError(f"--term {word!r} is given twice, as {found[word]!r} and as {term!r}: leave one out")
    if file is None:
        return found
    from cutaway.decoding.rules.terms import read_terms

    return {**read_terms(file), **found}


def _fingerprint(terms: dict[str, str]) -> str | None:
    """A glossary may be larger than all that is said of a run besides."""
    return hashlib.sha256(repr(sorted(terms.items())).encode()).hexdigest()[:16] if terms else None


def _line(found: "Translation", scores: bool, align: bool, as_json: bool) -> str:
    """One text's answer as one line: JSON, or columns with tabs between."""
    if as_json:
        return json_text(found.to_dict())
    columns: list[str] = []
    alone = found.asked == 1 and not scores and not align
    for one in found.n_best:
        columns.append(one.text if alone else one.text.replace("\t", " "))
        columns += [f"{one.score:.4f}"] if scores else []
    columns += [""] * ((1 + scores) * found.asked - len(columns))  # where fewer were found, every line has as many
    if align and found.alignment is not None:
        columns.append(found.alignment.pharaoh())
    return "\t".join(columns)


def _show(found: "Translation", scores: bool, align: bool) -> None:
    from rich.text import Text

    from cutaway.cli.shared.console import Console

    console = Console()
    for one in found.n_best:
        said = Text.assemble((f"{one.score:8.4f}  ", "dim"), one.text) if scores else Text(one.text)
        console.print(said, soft_wrap=True)
    if align:
        for sentence in found.sentences:
            if sentence.alignment is not None:
                console.print()
                console.print(show_alignment(sentence.alignment, console.width), soft_wrap=True)
