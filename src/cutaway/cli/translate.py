"""`cutaway translate`: words, a pipe or a file in; the same lines in another language out."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.asking import In, Precision, Where, reading, ready
from cutaway.cli.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.decoding.align import Alignment
    from cutaway.decoding.translate import Translation


Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT…|-]", help="What to translate; - reads lines.")]
To = Annotated[str | None, typer.Option("--to", help="The language that is wanted, where the model knows several.")]
Beam = Annotated[int, typer.Option("--beam", min=1, help="How many beginnings are kept.")]
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help="score = log p / length^penalty.")]
NBest = Annotated[int, typer.Option("--nbest", min=1, help="How many translations of each text.")]
Scores = Annotated[bool, typer.Option("--scores", help="Say how likely the model finds them.")]
Align = Annotated[bool, typer.Option("--align", help="Say which word comes from which.")]
Prefix = Annotated[str | None, typer.Option("--prefix", help="How each translation has to begin.")]
Whole = Annotated[bool, typer.Option("--whole", help="Take each line for one sentence; else lines are split.")]
Input = Annotated[Path | None, typer.Option("--input", help="A file to translate, line by line.")]
Output = Annotated[Path | None, typer.Option("--output", help="Where the lines go.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an output that was interrupted.")]


def translate(
    texts: Texts = None,
    *,
    model: Where,
    to: To = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 1.0,
    nbest: NBest = 1,
    scores: Scores = False,
    align: Align = False,
    prefix: Prefix = None,
    whole: Whole = False,
    input: Input = None,
    output: Output = None,
    resume: Resume = False,
    precision: In = Precision.fp32,
    as_json: Json = False,
) -> None:
    """Translate texts, a pipe or a file; every line of the input gives one line."""
    texts = [] if texts == ["-"] else texts or []
    if texts and (input or output):
        raise InputError("either texts, or --input and --output: lines come from a file or a pipe")
    if resume and not output:
        raise InputError("--resume goes on with a file: give --output")
    if nbest > beam:
        raise InputError(f"--nbest {nbest} needs a --beam of at least {nbest}")
    options = {"to": to, "beam": beam, "length_penalty": length_penalty, "n_best": nbest, "aligned": align,
               "prefix": prefix, "split": not whole}  # fmt: skip
    answers = _answers(model, precision, options)
    if texts:
        found = answers(texts, lambda done, total: None)
        readable = sys.stdout.isatty() and not as_json
        for one in found:
            if readable:
                _show(one, scores, align)
            else:
                print(_line(one, scores, align, as_json))
        return
    settings = {"model": str(model.resolve()), **options, "scores": scores, "precision": precision.value,
                "json": as_json}  # fmt: skip

    def answer(lines: list[str], report: Callable[[int, int], None]) -> list[str]:
        return [_line(one, scores, align, as_json) for one in answers(lines, report)]

    _lines(answer, input, output, resume, settings)


def _answers(model: Path, precision: Precision, options: dict[str, Any]) -> Callable[..., "list[Translation]"]:
    from cutaway.decoding.translate import tag_for, translations
    from cutaway.model.model import EncoderDecoderModel

    loaded, found = ready(model, precision)
    if not isinstance(loaded, EncoderDecoderModel):
        raise InputError(f"{model} is a {loaded.config.family} model, which does not translate: see `cutaway generate`")
    tokenizer = reading(found, model)
    tag_for(tokenizer, options["to"])  # wrong words are refused before a file is begun
    return lambda texts, report: translations(loaded, tokenizer, texts, report=report, **options)


def _lines(answer: Any, input: Path | None, output: Path | None, resume: bool, settings: dict[str, Any]) -> None:
    """From a file or stdin, to a file or stdout."""
    from contextlib import ExitStack

    from cutaway.decoding.lines import stream, to_file

    with ExitStack() as stack:
        name = "stdin" if input is None else str(input)
        try:
            source: Any = sys.stdin.buffer if input is None else stack.enter_context(input.open("rb"))
        except OSError as error:
            raise InputError(f"{input} cannot be read: {error.strerror}") from None
        report = stack.enter_context(_progress(shown=output is not None or not sys.stdout.isatty()))
        if output is None or (output.exists() and not output.is_file()):
            sink: Any = sys.stdout.buffer if output is None else stack.enter_context(output.open("wb"))
            stream(source, sink, answer, name=name, report=report)
        else:
            to_file(source, output, answer, settings=settings, resume=resume, name=name, report=report)


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """How many lines are done, on stderr, when somebody watches."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines"), TimeElapsedColumn())
    disabled = not (shown and console.is_terminal)
    with Progress(*columns, transient=True, console=console, disable=disabled) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total: progress.update(bar, completed=done)


def _line(found: "Translation", scores: bool, align: bool, as_json: bool) -> str:
    """One text's answer as one line: JSON, or columns with tabs between."""
    if as_json:
        return json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False)
    columns: list[str] = []
    alone = len(found.n_best) == 1 and not scores and not align
    for one in found.n_best:
        columns.append(one.text if alone else one.text.replace("\t", " "))
        columns += [f"{one.score:.4f}"] if scores else []
    if align and found.alignment is not None:
        columns.append(found.alignment.pharaoh())
    return "\t".join(columns)


def _show(found: "Translation", scores: bool, align: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for one in found.n_best:
        said = Text.assemble((f"{one.score:8.4f}  ", "dim"), one.text) if scores else Text(one.text)
        console.print(said, soft_wrap=True)
    if align:
        for sentence in found.sentences:
            if sentence.alignment is not None:
                console.print()
                for row in picture(sentence.alignment):
                    console.print(Text(row), soft_wrap=True)


SHADES = "·░▒▓█"


def picture(alignment: "Alignment") -> list[str]:
    """A row for each target word: how much it looked at each source word, and the one that it looked at most."""
    words = [alignment.target[a:b] for a, b in alignment.target_words]
    width = max(map(len, words), default=0)
    rows = []
    looked = zip(words, alignment.matrix.tolist(), alignment.links(), strict=True)
    for word, weights, ((a, b), _, weight) in looked:
        cells = " ".join(SHADES[min(4, int(w * 5))] for w in weights)
        rows.append(f"{word:>{width}}  {cells}  {alignment.source[a:b]} {weight:.2f}")
    return rows
