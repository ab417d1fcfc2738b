"""`cutaway translate`: words, a pipe or a file in; the same lines in another language out."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.arguments import Options, option
from cutaway.cli.shared.line_commands import LineOptions, answer_lines, fingerprint, given_texts, hint_at_files
from cutaway.cli.shared.models import In, Precision, Where, load_ready, tokenizer_for_text
from cutaway.cli.shared.options import Json
from cutaway.decoding.options import TranslationOptions
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.decoding.translate import Translation


Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT…|-]", help="Texts to translate; - reads lines.")]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score of each translation.")]


@dataclass(frozen=True, kw_only=True)
class TermOptions(Options):
    """Where the terms come from."""

    term: Sequence[str] = option(
        (), "A word and the translation to use for it.", type=list[str], metavar="WORD=TRANSLATION"
    )
    terms: Path | None = option(None, "A file of such words: word, tab, translation.")


def translate(
    texts: Texts = None,
    *,
    model: Where,
    options: TranslationOptions,
    scores: Scores = False,
    terms: TermOptions,
    lines: LineOptions,
    precision: In = Precision.auto,
    as_json: Json = False,
) -> None:
    """Translate texts, or the lines of a file or a pipe. Each line of the input gives one line."""
    texts = given_texts(texts, lines)
    glossary = _terms(terms.term, terms.terms)
    translated, precision = _translator(model, precision, replace(options, terms=glossary))
    if texts:
        hint_at_files(texts)
        readable = sys.stdout.isatty() and not as_json
        for one in translated(texts):
            if readable:
                _show(one, scores, options.align)
            else:
                print(_line(one, scores, options.align, as_json))
        return
    plain = {"to": options.to, "beam": options.beam, "length_penalty": options.length_penalty, "prune": options.prune,
             "n_best": options.n_best, "aligned": options.align, "prefix": options.prefix,
             "split": options.split}  # fmt: skip
    settings = {**fingerprint(model), **plain, "terms": _terms_hash(glossary), "scores": scores,
                "precision": precision.value, "json": as_json}  # fmt: skip

    def answer(some: list[str], progress: Callable[[int, int], None]) -> list[str]:
        return [_line(one, scores, options.align, as_json) for one in translated(some, progress=progress)]

    answer_lines(answer, lines, settings, unit="sentences")


def _translator(
    model: Path, precision: Precision, options: TranslationOptions
) -> "tuple[Callable[..., list[Translation]], Precision]":
    """A function from texts to their translations, and the precision it computes in."""
    loaded, found, precision = load_ready(model, precision)

    from cutaway.decoding.translate import tag_for, translations
    from cutaway.decoding.translate_sentences import prefix_ids
    from cutaway.model.model import EncoderDecoderModel

    if not isinstance(loaded, EncoderDecoderModel):
        raise InputError(
            f"{model} is a {loaded.config.family} model, which does not translate: `cutaway models` lists what does"
        )
    tokenizer = tokenizer_for_text(found, model)
    tag_for(tokenizer, options.to)  # wrong options are refused before a file is begun
    assert options.prefix is None or isinstance(options.prefix, str)
    prefix_ids(tokenizer, options.prefix)
    if options.terms:
        from cutaway.decoding.rules.terms import Glossary

        options = replace(options, terms=Glossary(options.terms, tokenizer))
    return partial(translations, loaded, tokenizer, options=options), precision


def _terms(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Words and their translations, from a file and from --term, which takes precedence."""
    found: dict[str, str] = {}
    for pair in pairs:
        word, equals, term = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InputError(f"--term {pair!r} has no translation: write WORD=TRANSLATION")
        if found.setdefault(word, term) != term:
            raise InputError(f"--term {word!r} is given twice, as {found[word]!r} and as {term!r}: leave one out")
    if file is None:
        return found
    from cutaway.decoding.rules.terms import read_terms

    return {**read_terms(file), **found}


def _terms_hash(terms: dict[str, str]) -> str | None:
    """A fingerprint: a glossary may be large."""
    return hashlib.sha256(repr(sorted(terms.items())).encode()).hexdigest()[:16] if terms else None


def _line(found: "Translation", scores: bool, align: bool, as_json: bool) -> str:
    """One text's answer as one line: JSON, or columns with tabs between."""
    if as_json:
        from cutaway.pictures.terminal_text import json_text

        return json_text(found.to_dict())
    columns: list[str] = []
    alone = found.requested == 1 and not scores and not align
    for one in found.n_best:
        columns.append(one.text if alone else one.text.replace("\t", " "))
        columns += [f"{one.score:.4f}"] if scores else []
    columns += [""] * ((1 + scores) * found.requested - len(columns))  # where fewer were found, every line has as many
    if align and found.alignment is not None:
        columns.append(found.alignment.pharaoh())
    return "\t".join(columns)


def _show(found: "Translation", scores: bool, align: bool) -> None:
    from rich.text import Text

    from cutaway.pictures.console import Console
    from cutaway.pictures.terminal_tables import show_alignment

    console = Console()
    for one in found.n_best:
        said = Text.assemble((f"{one.score:8.4f}  ", "dim"), one.text) if scores else Text(one.text)
        console.print(said, soft_wrap=True)
    if align:
        for sentence in found.sentences:
            if sentence.alignment is not None:
                console.print()
                console.print(show_alignment(sentence.alignment, console.width), soft_wrap=True)
