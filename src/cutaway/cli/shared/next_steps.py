"""What to do with a model that was just trained: the commands that use, measure and inspect it."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.training.recipe import DataPart, Recipe
from cutaway.training.tasks import data_kind, task_of

PROMPT, TEXT = 3, 8  # words of an example


def next_steps(recipe: Recipe, out: Path) -> list[str]:
    """The commands for this model, with an example from its data."""
    head, model = task_of(recipe).head, shlex.quote(str(out))
    text = "A text"
    with suppress(CutawayError, OSError):
        text = next(_examples(recipe), text)
    to = f" --to {recipe.data.directions[0].partition('-')[2]}" if recipe.data.directions else ""
    if head in ("masked_language_model", "pretrain"):
        text = _with_blank(text)
    quoted = shlex.quote(text)
    use = {
        "language_model": f"cutaway generate {quoted} --model {model}",
        "translate": f"cutaway translate {quoted} --model {model}{to}",
        "masked_language_model": f"cutaway fill {quoted} --model {model}",
        "pretrain": f"cutaway fill {quoted} --model {model}",
    }.get(head, f"cutaway classify {quoted} --model {model}")
    steps = [use]
    if recipe.objective.kind != "spans":  # which has no score of its own
        steps.append(f"cutaway evaluate {model} {_data_to_measure(recipe)}")
    if head != "tag":  # a tag for each word is no single answer to explain
        steps.append(f"cutaway inspect {model} {quoted}{to} --out page.html")
    return steps


def _examples(recipe: Recipe) -> Iterator[str]:
    """The texts or images of the training files."""
    d = recipe.data
    paths = [Path(d.root) / name for name in d.train]
    match data_kind(recipe):
        case "text":
            from cutaway.data.text_files import read_lines

            yield from (" ".join(line.split()[:PROMPT]) for line in read_lines(paths[0]) if line.strip())
        case "table":
            from cutaway.data.table_files import text_of
            from cutaway.training.datasets.tables import Tables

            tables = Tables(recipe, lambda note: None)
            columns = [d.directions[0].partition("-")[0]] if d.directions else tables.columns
            columns = columns[:1] if task_of(recipe).columns == "pair" else columns
            for row in tables.rows(d.train):
                yield "\t".join(" ".join(text_of(row[name]).split()[:TEXT]) for name in columns)
        case _:
            from cutaway.data.images import SUFFIXES

            files = sorted(path for path in paths[0].rglob("*") if path.suffix.lower() in SUFFIXES)
            yield str(files[0]) if files else "IMAGE.png"


def _with_blank(text: str) -> str:
    """With ___ instead of its second word, or of its only one."""
    words = text.split()
    at = min(1, len(words) - 1)
    return " ".join([*words[:at], "___", *words[at + 1 :]])


def _data_to_measure(recipe: Recipe) -> str:
    """The validation files, or files like those that it was trained on; with the names of their columns."""
    d, kind = recipe.data, data_kind(recipe)
    if d.valid:
        files = [str(Path(d.root) / name) for name in d.valid]
    elif kind == "images":
        files = ["OTHER"] if len(d.train) == 1 else ["IMAGES", "LABELS"]
    else:
        files = [f"other{Path(name).suffix}" for name in d.train]
    if d.format == "parallel":
        files = [",".join(pair) for pair in zip(files[::2], files[1::2], strict=False)]
    return " ".join(shlex.quote(word) for word in [*files, *(_options(recipe, d) if kind == "table" else ())])


def _options(recipe: Recipe, d: DataPart) -> Iterator[str]:
    """The names of the columns, if they are not the usual ones, and the direction of a translation."""
    task = task_of(recipe)
    if d.directions:
        yield "--to"
        yield d.directions[0].partition("-")[2]
    if d.format == "parallel" or task.head == "language_model":
        return
    if task.columns == "pair":
        source, _, target = d.directions[0].partition("-") if d.directions else (d.source, "", d.target)
        columns = {"source": source, "target": target}
    else:
        columns = {"text": d.text, "second": d.second or "second", "label": d.label}
    for role, name in columns.items():
        if name != role:
            yield f"--{role}-column"
            yield name
    if d.header:
        yield "--header"
        yield ",".join(d.header)
