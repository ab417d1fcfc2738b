"""From files to inputs and wanted outputs, by the model's task.

translate        a table with two columns of text, or two parallel files
language_model   text files; masked words, too; or tables of minimal pairs, Winograd schemas, LAMBADA's passages
classify, tag …  a table with one or two columns of text, and one of labels
pictures         a folder for each class, an .npz archive, or two idx files
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.data.images import Images, idx_images, image_folder, npz_images
from cutaway.data.table_examples import is_blank
from cutaway.data.table_files import Row, Rows, read_parallel, read_table, tagged_words, text_of
from cutaway.data.text_files import Split, read_documents
from cutaway.data.zip_archives import is_zip, open_zip
from cutaway.errors import InputError
from cutaway.evaluation.lambada import read_last_words
from cutaway.evaluation.minimal_pair_files import read_pairs
from cutaway.evaluation.winograd_files import read_schemas
from cutaway.files import read_json
from cutaway.model.model import EncoderDecoderModel, Model

LANGUAGE = ("language_model", "masked_language_model", "pretrain")
LABELLED = ("classify", "regress", "tag")
LABELS = ("label", "labels", "tags", "class", "score", "gold_label")  # usual names of the column


@dataclass(frozen=True)
class Columns:
    """Names of columns, where they have to be given; `header` names all of them if a table's first line does not."""

    source: str | None = None
    target: str | None = None
    text: str | None = None
    second: str | None = None
    label: str | None = None
    header: tuple[str, ...] | None = None
    good: str | None = None
    bad: str | None = None


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and wanted outputs; `skipped` counts rows with an empty side."""

    inputs: list[Any] | np.ndarray
    wanted: list[Any] | np.ndarray | None
    skipped: int = 0


def read_examples(
    model: Model,
    paths: Sequence[Path],
    columns: Columns | None = None,
    *,
    to: str | None = None,
    split: Split = "file",
    limit: int | None = None,
) -> Examples:
    """The first `limit` examples of some files; of a language model's text, characters; of minimal pairs, by table."""
    columns = columns or Columns()
    if columns.good or columns.bad or model.config.task in LANGUAGE:
        found = read_pairs(paths, columns.good, columns.bad, header=columns.header, limit=limit)
        if found is not None:
            return Examples(found[0], None, found[1])
    if model.config.task not in LABELLED and model.config.family != "vit":
        probes = read_schemas(paths, limit) or read_last_words(paths, limit)
        if probes is not None:
            return Examples(probes, None)
    if model.config.family == "vit":
        return _pictures(model, paths, limit)
    if isinstance(model, EncoderDecoderModel):
        return _pairs(paths, columns, to, limit)
    if model.config.task in LANGUAGE:
        return Examples(list(_documents(paths, split, limit)), None)
    if model.config.task in LABELLED:
        return _labelled(_table(paths, columns), columns, model.config.task, limit)
    raise InputError(f"no score is known for a {model.config.family} model with task={model.config.task!r}")


def picture_numbers(folder: Path) -> dict[str, list[float]]:
    """How pixels are normalised, as a model's config says, or the `preprocessor_config.json` of other tools."""
    said = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    own = {name: said.get(f"pixel_{name}") for name in ("mean", "std")}
    if all(own.values()):
        return {name: [float(x) for x in values] for name, values in own.items() if values}
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        return {}
    said = read_json(file)
    found = {ours: said.get(theirs) for ours, theirs in (("mean", "image_mean"), ("std", "image_std"))}
    return {name: [float(x) for x in values] for name, values in found.items() if isinstance(values, list)}


def _documents(paths: Sequence[Path], split: Split, limit: int | None) -> Iterator[list[str]]:
    """Each document as its pieces."""
    pieces: list[str] = []
    for piece in read_documents(paths, split):
        text = piece.text if limit is None else piece.text[:limit]
        limit = limit if limit is None else limit - len(text)
        pieces.append(text)
        if piece.ends or limit == 0:
            yield pieces
            pieces = []
        if limit == 0:
            return


def _pairs(paths: Sequence[Path], columns: Columns, to: str | None, limit: int | None) -> Examples:
    if len(paths) == 2:
        rows, source, target = read_parallel(*paths), "source", "target"
    else:
        rows = _table(paths, columns)
        source, target = _sides(list(_first(rows)), columns, to, rows)
    some = list(islice(rows, limit))
    kept = [row for row in some if not is_blank(row, (source, target))]
    if not kept:
        raise InputError(f"{_names(rows)}: no pair of texts")
    sources, references = ([text_of(row[name]) for row in kept] for name in (source, target))
    return Examples(sources, references, rows.skipped + len(some) - len(kept))


def _sides(names: list[str], columns: Columns, to: str | None, rows: Rows) -> tuple[str, str]:
    """The columns of source and target: as said; by the language that is wanted; by name; or the only two."""
    source, target = columns.source, columns.target
    if target is None:
        target = to if to in names else "target" if "target" in names else None
    if source is None and "source" in names:
        source = "source"
    if len(names) == 2:
        if source is None:
            source = names[0] if target is None else next((name for name in names if name != target), None)
        if target is None:
            target = next((name for name in names if name != source), None)
    if source is None or target is None:
        raise InputError(
            f"{_names(rows)} has the columns {', '.join(names)}: say which are source and target with --source-column "
            f"and --target-column"
        )
    for name in (source, target):
        _check_column(name, names, rows)
    return source, target


def _labelled(rows: Rows, columns: Columns, task: str, limit: int | None) -> Examples:
    names = list(_first(rows))
    label = columns.label or next((name for name in LABELS if name in names), None)
    others = [name for name in names if name != label]
    text = columns.text or (others[0] if len(others) == 1 else "text" if "text" in others else None)
    if label is None or text is None:
        missing = "labels with --label-column" if label is None else "text with --text-column"
        raise InputError(f"{_names(rows)} has the columns {', '.join(names)}: say which holds the {missing}")
    for name in filter(None, (label, text, columns.second)):
        _check_column(name, names, rows)
    inputs: list[Any] = []
    wanted: list[Any] = []
    for row in islice(rows, limit):
        if task == "tag":
            inputs.append(tagged_words(row[text]))
            wanted.append(tagged_words(row[label]))
        else:
            first = text_of(row[text])
            inputs.append(first if columns.second is None else (first, text_of(row[columns.second])))
            wanted.append(text_of(row[label]))
    if not inputs:
        raise InputError(f"{_names(rows)}: no rows")
    return Examples(inputs, wanted)


def _pictures(model: Model, paths: Sequence[Path], limit: int | None) -> Examples:
    numbers = model.config.to_dict()
    decoded = {"size": numbers["image_size"], "channels": numbers["n_channels"]}
    images: Images
    if len(paths) == 2:
        images = idx_images(*paths)
    elif paths[0].is_dir():
        images = image_folder(paths[0], **decoded)
    elif paths[0].suffix == ".npz":
        images = npz_images(paths[0], **({} if _holds_arrays(paths[0]) else decoded))
    else:
        raise InputError(f"{paths[0]}: pictures come as a folder for each class, an .npz archive, or two idx files")
    wanted = [images.names[label] for label in images.labels[:limit].tolist()]
    return Examples(np.asarray(images.pixels[:limit]), wanted)


def _holds_arrays(path: Path) -> bool:
    """Whether the pictures of an archive are decoded already; a file that is no archive is refused by its reader."""
    if not is_zip(path):
        return False
    with open_zip(path, "npz") as (_, members):
        return "images.npy" in members


def _table(paths: Sequence[Path], columns: Columns) -> Rows:
    if len(paths) != 1:
        raise InputError(f"{len(paths)} files: give one table")
    return read_table(paths[0], header=columns.header)


def _first(rows: Rows) -> Row:
    first = next(iter(rows), None)
    if first is None:
        raise InputError(f"{_names(rows)}: no rows")
    return first


def _check_column(name: str, names: list[str], rows: Rows) -> None:
    if name not in names:
        raise InputError(f"{_names(rows)} has no column {name!r}; there are {', '.join(names)}")


def _names(rows: Rows) -> str:
    return " and ".join(map(str, rows.paths))
