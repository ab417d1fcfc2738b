"""Recipes for people who bring files and no recipe: what the files look like says what is trained.

cutaway train novel.txt --out novel-model             a language model
cutaway train pairs.tsv --out translator              columns source and target: a translator
cutaway train train.en train.de --out translator      two parallel files: the same
cutaway train reviews.csv --out classifier            columns text (second) and label: a classifier
cutaway train flowers/ --out flower-model             a folder for each class, .npz or idx files: pictures
"""

import os
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cutaway.data.tables import SUFFIXES, read_table
from cutaway.errors import ConfigError, InputError
from cutaway.training.material.tables import quirks_of
from cutaway.training.recipe import DataPart, ModelPart, Recipe, change, read_part, recipe_from

PACKED = (".gz", ".xz")
SMALL_TEXT = 200_000  # bytes: too little for word pieces, so its letters are learnt
GENTLE = {"kind": "adamw", "rate": 1e-4, "betas": [0.9, 0.98], "weight_decay": 0.01}
COLUMNS = (
    "columns named source and target, or text and label (and second, for pairs), are needed; --set data.text=… --set "
    "data.label=…, or data.source and data.target, say what they are called here; where line 1 has no names, --set "
    'data.header=["text","label"] gives them'
)


def recipe_for(paths: Sequence[Path], changes: Iterable[str] = ()) -> Recipe:
    """The recipe that fits these files, with `a.b=c` changes on top."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: give a recipe (.toml), or files to learn from")
    where = f"the recipe for {', '.join(map(str, paths))}"
    asked: dict[str, Any] = {"data": {}, "model": {}}
    changes = list(changes)
    for text in changes:
        change(asked, text)
    kind, data = _looks_like(paths, asked["data"], where)
    values = tomllib.loads(files(__package__).joinpath(f"{kind}.toml").read_text(encoding="utf-8"))
    values["data"] |= {"root": "", "train": [os.fspath(path) for path in paths], **data}
    if kind == "text" and sum(path.stat().st_size for path in paths) < SMALL_TEXT:
        values["tokenizer"] = {"kind": "char"}
    if read_part(ModelPart, asked["model"], "model", where).start is not None:
        values["model"] = {}  # a trained model brings its size and its tokenizer along …
        values.pop("tokenizer", None)
        values["optimizer"] = dict(GENTLE)  # … and would forget what it knows at the rate of a new one
    for text in changes:
        change(values, text)
    return recipe_from(values, where)


def _looks_like(paths: Sequence[Path], asked: Any, where: str) -> tuple[str, dict[str, Any]]:
    """text, pairs, labels or images, and what [data] has to say about them; what is `asked` of [data] counts."""
    d, named = read_part(DataPart, asked, "data", where), set(asked)
    suffixes = {_suffix(path) for path in paths}
    if paths[0].is_dir() or suffixes == {".npz"} or any("idx" in path.name for path in paths):
        return "images", {}
    if suffixes <= set(SUFFIXES) or d.table:
        return _table(paths[0], d, named)
    if len(paths) == 2 and len(suffixes) == 2 and _stem(paths[0]) == _stem(paths[1]):
        return "pairs", {"format": "parallel", "header": [suffix.lstrip(".") for suffix in map(_suffix, paths)]}
    if len(paths) == 2 and len(d.header) == 2:
        return "pairs", {"format": "parallel"}
    if suffixes & set(SUFFIXES):
        raise ConfigError(f"{', '.join(map(str, paths))}: give texts, or tables, not both")
    return "text", {}


def _table(path: Path, d: DataPart, named: set[str]) -> tuple[str, dict[str, Any]]:
    columns = next(iter(read_table(path, **quirks_of(d))), {}).keys()
    if d.directions or ({d.source, d.target} <= columns and not named & {"text", "second", "label"}):
        return "pairs", {"format": "table"}
    texts = (d.text,) if "text" in named else ("text", "sentence", "first", "sentence1")
    text = next((name for name in texts if name in columns), None)
    second = d.second or next((name for name in ("second", "sentence2") if name in columns), None)
    if text is None or d.label not in columns or named & {"source", "target"}:
        raise InputError(f"{path} has the columns {', '.join(columns)}: {COLUMNS}")
    return "labels", {"format": "table", "text": text} | ({"second": second} if second else {})


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in PACKED else path.suffix


def _stem(path: Path) -> str:
    return Path(path.stem).stem if path.suffix in PACKED else path.stem
