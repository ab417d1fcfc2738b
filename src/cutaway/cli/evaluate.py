"""`cutaway evaluate`: how good a model is at what it was made for, and how sure that is."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.options import Device, Json, On, locate_model
from cutaway.cli.shared.tables import json_text
from cutaway.cli.shared.word_vectors import AT, EMBEDDING, score_words
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.evaluation.examples import Examples
    from cutaway.evaluation.minimal_pairs import PairGroup
    from cutaway.evaluation.report import Report
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer


class Split(StrEnum):
    """What parts the documents of a text."""

    file = "file"
    line = "line"
    form_feed = "form_feed"
    blank_line = "blank_line"


class Weights(StrEnum):
    """What the model computes with."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    int8 = "int8"


Where = Annotated[Path, typer.Argument(metavar="MODEL", callback=locate_model, help="A model's folder, file or name.")]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="A text, a table, pictures, BLiMP, WSC273, LAMBADA; or two files: a.en a.de, a.en,a.de, idx.",
    ),
]
SourceColumn = Annotated[str | None, typer.Option("--source-column", help="Translation: the column to translate.")]
TargetColumn = Annotated[str | None, typer.Option("--target-column", help="Translation: the column of references.")]
TextColumn = Annotated[str | None, typer.Option("--text-column", help="Labels: the column of texts.")]
SecondColumn = Annotated[str | None, typer.Option("--second-column", help="Labels: the second text of a pair.")]
LabelColumn = Annotated[str | None, typer.Option("--label-column", help="Labels: the column of labels.")]
GoodColumn = Annotated[str | None, typer.Option("--good-column", help="Pairs: good sentences; else sentence_good.")]
BadColumn = Annotated[str | None, typer.Option("--bad-column", help="Pairs: bad sentences; else sentence_bad.")]
Before = Annotated[
    str | None, typer.Option("--before", help="Pairs: text before each sentence; else an empty line, or a start token.")
]
Header = Annotated[str | None, typer.Option("--header", help="Names of all columns, where line 1 has none: en,de.")]
To = Annotated[str | None, typer.Option("--to", help="Translation: the language that is wanted, such as de.")]
Beam = Annotated[int, typer.Option("--beam", min=1, help="Translation: how many beginnings are kept.")]
LengthPenalty = Annotated[float, typer.Option("--length-penalty", help="Translation: score = log p / length^penalty.")]
Context = Annotated[int | None, typer.Option("--context", min=1, help="Text: tokens in a window; else at most 1024.")]
Stride = Annotated[int | None, typer.Option("--stride", min=1, help="Text: how far windows move; else half of that.")]
SplitAt = Annotated[Split, typer.Option("--split", help="Text: what parts its documents.")]
NoStart = Annotated[bool, typer.Option("--no-start", help="Text: no start token; a document's first is not scored.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Only the first examples; characters of a text; pairs of each table."),
]
Resamples = Annotated[int, typer.Option("--resamples", min=0, help="Draws for the intervals; 0 leaves them out.")]
Seed = Annotated[int, typer.Option("--seed", help="Of those draws, and of the words that are hidden.")]
Vocab = Annotated[int, typer.Option("--vocab", min=1, help="Words: search among the first so many, as gensim does.")]
Prune = Annotated[
    float | None, typer.Option("--prune", min=0, help="Translation: give up what is so far behind its best, in log p.")
]
Kind = Annotated[Weights, typer.Option("--dtype", help="Of the weights; int8 is for the CPU.")]


def evaluate(
    model: Where,
    data: Data,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    text_column: TextColumn = None,
    second_column: SecondColumn = None,
    label_column: LabelColumn = None,
    good_column: GoodColumn = None,
    bad_column: BadColumn = None,
    before: Before = None,
    header: Header = None,
    to: To = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 1.0,
    prune: Prune = None,
    context: Context = None,
    stride: Stride = None,
    split: SplitAt = Split.file,
    no_start: NoStart = False,
    limit: Limit = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    dtype: Kind = Weights.float32,
    device: On = Device.auto,
    at: Annotated[str, typer.Option("--at", help=AT)] = EMBEDDING,
    vocab: Vocab = 300_000,
    as_json: Json = False,
) -> None:
    """BLEU and chrF, bits per byte, blanks, BLiMP, WSC273, LAMBADA, analogies, GLUE's metrics: how good a model is.

    MODEL may also be a file of word vectors (GloVe, word2vec, .vec, .npy), for analogies and pairs of words.
    """
    import torch

    from cutaway.checkpoints import load, tokenizer_of
    from cutaway.checkpoints.word_vectors import is_word_vectors
    from cutaway.data.cache import notes_to
    from cutaway.evaluation import Sureness
    from cutaway.evaluation import evaluate as score
    from cutaway.evaluation.examples import Columns, read_examples
    from cutaway.evaluation.word_tests import read_word_test
    from cutaway.model.kernels.int8 import to_int8

    sure = Sureness(seed=seed, resamples=resamples)
    questions = None if header else read_word_test(_files(data), limit)
    if questions:
        with _progress() as report:
            found = score_words(model, questions, at, vocab, sure=sure, progress=report)
        _say({"model": str(model), "data": data, "device": "cpu", "dtype": "float32", "skipped": 0}, found, as_json)
        return
    if is_word_vectors(model):
        raise InputError(
            f"{model} has word vectors, which are asked for analogies or likeness: questions-words.txt, wordsim353.tsv"
        )
    chosen = device.value
    if device is Device.auto:
        chosen = "cuda" if torch.cuda.is_available() and dtype is not Weights.int8 else "cpu"
    loaded = load(model, dtype=torch.float32 if dtype is Weights.int8 else getattr(torch, dtype.value), device=chosen)
    if dtype is Weights.int8:
        to_int8(loaded)
    tokenizer = tokenizer_of(model)
    names = None if header is None else tuple(header.split(","))
    columns = Columns(source_column, target_column, text_column, second_column, label_column, names,
                      good_column, bad_column)  # fmt: skip
    with notes_to(lambda note: print(note, file=sys.stderr)):
        examples = read_examples(loaded, _files(data), columns, to=to, split=split.value, limit=limit)
    options = _options(loaded, tokenizer, model, examples, to=to, beam=beam, length_penalty=length_penalty, prune=prune,
                       before=before, context=context, stride=stride, start=not no_start)  # fmt: skip
    with _progress() as report:
        found = score(loaded, tokenizer, examples.inputs, examples.wanted, sure=sure, progress=report, **options)
    said = {"device": chosen, "dtype": dtype.value, "skipped": examples.skipped}
    _say({"model": str(model), "data": data, **said}, found, as_json)


def _say(said: dict[str, Any], found: "Report", as_json: bool) -> None:
    if as_json:
        print(json_text({**said, "data": ",".join(said["data"]), **found.to_dict()}, 2))
    else:
        _show(said, found)


def _options(
    model: "Model", tokenizer: "Tokenizer | None", path: Path, examples: "Examples", *, to: str | None, **asked: Any
) -> dict[str, Any]:
    """Those of all options that the model's task knows."""
    from cutaway.decoding.translate import languages, tag_for
    from cutaway.evaluation import LastWord, Pair, Schema
    from cutaway.evaluation.examples import picture_numbers
    from cutaway.model.model import EncoderDecoderModel

    trained_here = {"as_trained": (path / "recipe.toml").is_file()}  # `cutaway train` leaves its recipe there
    first = examples.inputs[0] if len(examples.inputs) else None
    writes = model.config.task == "language_model"
    if isinstance(first, LastWord):
        return {"start": asked["start"]}
    if isinstance(first, (Pair, Schema)):
        return {name: asked[name] for name in ("before", "start")} if writes else trained_here
    if isinstance(model, EncoderDecoderModel):
        # of a model that knows one language, --to chooses the column only
        tag = tag_for(tokenizer, to) if tokenizer is not None and languages(tokenizer) else None
        return {name: asked[name] for name in ("beam", "length_penalty", "prune")} | {"tag": tag}
    if model.config.task == "language_model":
        return {name: asked[name] for name in ("context", "stride", "start")}
    if model.config.task in ("masked_language_model", "pretrain"):
        return {"context": asked["context"]}
    if model.config.family == "vit":
        return dict(picture_numbers(path))
    return trained_here


def _files(data: Sequence[str]) -> list[Path]:
    """Paths, or some with commas between; a path that exists is one, whatever is in its name."""
    return [Path(part) for path in data for part in ([path] if Path(path).exists() else path.split(","))]


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, which keeps silent when nobody watches."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cutaway.cli.shared.console import Console

    console = Console(stderr=True)
    columns = (BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f}"), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


UNITS = {
    "translate": "sentence",
    "language_model": "document",
    "masked_language_model": "document",
    "minimal_pairs": "pair",
    "winograd": "schema",
    "last_words": "passage",
    "analogies": "analogy",
    "likeness": "pair",
    "tag": "sentence",
}
GROUPS = 12  # that are printed at most; --json has all


def _show(said: dict[str, Any], found: "Report") -> None:
    from rich.table import Table
    from rich.text import Text

    from cutaway.cli.shared.console import Console

    console = Console()
    unit = UNITS.get(found.task, "example") + ("" if found.n == 1 else "s")
    unit = unit.replace("ys", "ies")
    first, *others = said["data"]
    on = first if not others else f"{first} and {len(others)} more" if len(others) > 1 else f"{first},{others[0]}"
    console.print(Text.assemble((said["model"], "bold"), f" on {on}: {found.n:,} {unit}"), soft_wrap=True)
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    level = next((interval.level for interval in found.intervals.values()), 0.95)
    for title, side in (("score", "left"), ("", "right"), (f"{level:.0%}".replace("%", " %") + " interval", "right")):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    for name, value in found.scores.items():
        digits = 1 if found.task == "translate" else 4 if abs(value) < 10 else 2
        interval = found.intervals.get(name)
        between = "" if interval is None else f"{interval.low:.{digits}f} … {interval.high:.{digits}f}"
        table.add_row(Text(name, "bold"), f"{value:.{digits}f}", between)
    for name, group in _grouped(found):
        interval = None if group is None else group.interval
        between = "" if interval is None else f"{interval.low:.4f} … {interval.high:.4f}"
        cells = (Text(name, "dim"),) if group is None else (f"  {name}", f"{group.accuracy:.4f}", between)
        table.add_row(*cells)
    console.print(table)
    for note in found.notes:
        console.print(Text(note, "yellow"), soft_wrap=True)
    for name, signature in found.signatures.items():
        console.print(Text(f"{name}: {signature}", "dim"), soft_wrap=True)
    settings = {**found.settings, **({"skipped": said["skipped"]} if said["skipped"] else {})}
    told = [f"{name} {value}" for name, value in settings.items() if value is not None]
    told += [said["dtype"], said["device"], f"{found.seconds:.1f} s"]
    console.print(Text(" · ".join(told), "dim"), soft_wrap=True)


def _grouped(found: "Report") -> Iterator[tuple[str, "PairGroup | None"]]:
    """The score by field and by term, or by kind where there are no terms: a title, then the best first."""
    groups = getattr(found, "groups", {})
    for level, members in groups.items():
        if level == "kind" and "term" in groups:
            continue
        yield f"by {level}", None
        best_first = sorted(members.items(), key=lambda item: -item[1].accuracy)
        yield from best_first[:GROUPS]
        if len(members) > GROUPS:
            yield f"and {len(members) - GROUPS} more: --json", None
