"""`cutaway evaluate`: the scores of a model for its own task, with confidence intervals."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.arguments import Options, Progress, option
from cutaway.cli.shared.models import as_trained
from cutaway.cli.shared.options import Device, Json, On, Split, locate_model
from cutaway.cli.shared.word_vectors import AT, EMBEDDING, score_words
from cutaway.errors import InputError
from cutaway.evaluation.options import EvaluationOptions
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.evaluation.examples import Columns
    from cutaway.evaluation.minimal_pairs import PairGroup
    from cutaway.evaluation.report import Report
    from cutaway.model.model import Model


class Weights(StrEnum):
    """What the model computes in; the long names are torch's."""

    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"
    int8 = "int8"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
Where = Annotated[Path, typer.Argument(metavar="MODEL", callback=locate_model, help="A model's folder, file or name.")]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="A text, a table, pictures, BLiMP, WSC273, LAMBADA; or two files: a.en a.de, a.en,a.de, idx.",
    ),
]
In = Annotated[
    Weights,
    typer.Option("--precision", "--dtype", metavar="fp32|bf16|fp16|int8", help="Of the weights; int8 is for the CPU."),
]


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """How the data are read."""

    source_column: str | None = option(None, "Translation: the column to translate.")
    target_column: str | None = option(None, "Translation: the column of references.")
    text_column: str | None = option(None, "Labels: the column of texts.")
    second_column: str | None = option(None, "Labels: the column with the second text of a pair.")
    label_column: str | None = option(None, "Labels: the column of labels.")
    good_column: str | None = option(None, "Pairs: the column of good sentences; by default sentence_good.")
    bad_column: str | None = option(None, "Pairs: the column of bad sentences; by default sentence_bad.")
    header: str | None = option(None, "Names of all columns, if the first line does not name them: en,de.")
    split: Split = option(Split.file, "Text: what separates documents.")
    limit: int | None = option(
        None, "Use only the first examples; of a text, characters; of pairs, those of each table.", least=1
    )

    def columns(self) -> "Columns":
        from cutaway.evaluation.examples import Columns

        header = None if self.header is None else tuple(self.header.split(","))
        return Columns(self.source_column, self.target_column, self.text_column, self.second_column, self.label_column,
                       header, self.good_column, self.bad_column)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WordOptions(Options):
    """Tests of word vectors."""

    at: str = option(EMBEDDING, AT)
    vocab: int = option(300_000, "Words: search among the first VOCAB words, as gensim does.", least=1)


def evaluate(
    model: Where,
    data: Data,
    reading: DataOptions,
    options: EvaluationOptions,
    words: WordOptions,
    precision: In = Weights.fp32,
    device: On = Device.auto,
    as_json: Json = False,
) -> None:
    """Score a model on data, with confidence intervals.

    BLEU, bits per byte, accuracy, F1 and correlations, minimal pairs (BLiMP), WSC273, LAMBADA, analogies. MODEL may
    also be a file of word vectors (GloVe, word2vec, .vec, .npy), for analogies and pairs of words.
    """
    from cutaway.checkpoints import tokenizer_of
    from cutaway.checkpoints.word_vectors import is_word_vectors
    from cutaway.data.cache import notes_to
    from cutaway.evaluation import evaluate as score
    from cutaway.evaluation.examples import read_examples
    from cutaway.evaluation.options import BootstrapOptions
    from cutaway.evaluation.word_tests import read_word_test

    questions = None if reading.header else read_word_test(_files(data), reading.limit)
    if questions:
        with _progress() as progress:
            found = score_words(
                model, questions, words.at, words.vocab, progress=progress, options=BootstrapOptions.of(options)
            )
        _print({"model": str(model), "data": data, "device": "cpu", "dtype": "float32", "skipped": 0}, found, as_json)
        return
    if is_word_vectors(model):
        raise InputError(
            f"{model} is a file of word vectors, for analogies and similarity: questions-words.txt, wordsim353.tsv"
        )
    loaded, about = _load(model, precision, device)
    tokenizer = tokenizer_of(model)
    with notes_to(lambda note: print(note, file=sys.stderr)):
        examples = read_examples(
            loaded, _files(data), reading.columns(), to=options.to, split=reading.split.value, limit=reading.limit
        )
    options = _with_model(options, loaded, model)
    with _progress() as progress:
        found = score(loaded, tokenizer, examples.inputs, examples.wanted, progress=progress, options=options)
    _print({"model": str(model), "data": data, **about, "skipped": examples.skipped}, found, as_json)


def _load(model: Path, precision: Weights, device: Device) -> "tuple[Model, dict[str, str]]":
    """The model, and where and in what it computes."""
    import torch

    from cutaway.checkpoints import load

    dtype, chosen = TORCH_NAMES.get(precision.value, precision.value), device.value
    if device is Device.auto:
        chosen = "cuda" if torch.cuda.is_available() and dtype != "int8" else "cpu"
    kind: dict[str, Any] = {"precision": "int8"} if dtype == "int8" else {"dtype": getattr(torch, dtype)}
    return load(model, **kind, device=chosen), {"device": chosen, "dtype": dtype}


def _with_model(options: EvaluationOptions, model: "Model", path: Path) -> EvaluationOptions:
    """The options, with what the model's folder says of how it reads."""
    from cutaway.evaluation.examples import picture_numbers

    if model.config.family == "vit":
        return replace(options, **picture_numbers(path))  # type: ignore[arg-type]
    return replace(options, as_trained=as_trained(path))


def _print(about: dict[str, Any], found: "Report", as_json: bool) -> None:
    if as_json:
        print(json_text({**about, "data": ",".join(about["data"]), **found.to_dict()}, 2))
    else:
        _show(about, found)


def _files(data: Sequence[str]) -> list[Path]:
    """Paths, or several with commas between them; the name of a file that exists may hold commas."""
    return [Path(part) for path in data for part in ([path] if Path(path).exists() else path.split(","))]


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on stderr, if that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from cutaway.pictures.console import Console

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


def _show(about: dict[str, Any], found: "Report") -> None:
    from rich.table import Table
    from rich.text import Text

    from cutaway.pictures.console import Console

    console = Console()
    unit = UNITS.get(found.task, "example") + ("" if found.n == 1 else "s")
    unit = unit.replace("ys", "ies")
    first, *others = about["data"]
    on = first if not others else f"{first} and {len(others)} more" if len(others) > 1 else f"{first},{others[0]}"
    console.print(Text.assemble((about["model"], "bold"), f" on {on}: {found.n:,} {unit}"), soft_wrap=True)
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
    settings = {**found.settings, **({"skipped": about["skipped"]} if about["skipped"] else {})}
    notes = [f"{name} {value}" for name, value in settings.items() if value is not None]
    notes += [about["dtype"], about["device"], f"{found.seconds:.1f} s"]
    console.print(Text(" · ".join(notes), "dim"), soft_wrap=True)


def _grouped(found: "Report") -> Iterator[tuple[str, "PairGroup | None"]]:
    """The scores of groups: a title, then the best first, by field and by term, or by kind without terms."""
    groups = getattr(found, "groups", {})
    for level, members in groups.items():
        if level == "kind" and "term" in groups:
            continue
        yield f"by {level}", None
        best_first = sorted(members.items(), key=lambda item: -item[1].accuracy)
        yield from best_first[:GROUPS]
        if len(members) > GROUPS:
            yield f"and {len(members) - GROUPS} more: --json", None
