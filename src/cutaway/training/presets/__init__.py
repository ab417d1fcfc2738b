"""Recipes for people who bring files and no recipe: what the files look like says what is trained.

cutaway train novel.txt --out novel-model             a language model
cutaway train pairs.tsv --out translator              columns source and target: a translator
cutaway train train.en train.de --out translator      two parallel files (en.txt and de.txt are two): the same
cutaway train reviews.csv --out classifier            columns text (second) and label: a classifier
cutaway train flowers/ --out flower-model             a folder for each class, .npz or idx files: pictures
"""

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from cutaway.data.table_files import SUFFIXES, read_table
from cutaway.data.text_files import read_lines
from cutaway.errors import ConfigError, InputError
from cutaway.training.datasets.tables import quirks_of
from cutaway.training.recipe import DataPart, ModelPart, Recipe, change, read_part, recipe_from

PACKED = (".gz", ".xz")
SMALL_TEXT = 200_000  # bytes: too little for word pieces, so its letters are learnt
GENTLE = {"kind": "adamw", "rate": 1e-4, "betas": [0.9, 0.98], "weight_decay": 0.01}
COLUMNS = (
    "columns named source and target, or text and label (and second, for pairs), are needed; --set data.text=… --set "
    "data.label=…, or data.source and data.target, say what they are called here; where line 1 has no names, --set "
    'data.header=["text","label"] gives them'
)

# What the names of parallel files differ in: the languages of ISO 639-1, or the two sides.
SIDES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en"
    " eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv"
    " ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne"
    " ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st"
    " su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
    " source target src tgt trg".split()
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
    if suffixes & set(SUFFIXES):
        raise ConfigError(f"{', '.join(map(str, paths))}: give texts, or tables, not both")
    if "format" in named and d.format == "text":
        return "text", {}
    return _texts(paths, d)


def _texts(paths: Sequence[Path], d: DataPart) -> tuple[str, dict[str, Any]]:
    """Pairs where the names say that files belong together line by line; what only half looks so is refused."""
    if len(d.header) == 2:
        return "pairs", {"format": "parallel"}
    if not any(_sides(a, b, alone=len(paths) == 2) for a, b in combinations(paths, 2)):
        return ("pairs" if d.format == "parallel" else "text"), {}
    sides = {_sides(a, b, alone=len(paths) == 2) for a, b in zip(paths[::2], paths[1::2], strict=False)}
    counts = [sum(1 for _ in read_lines(path)) for path in paths]
    if len(paths) % 2 or len(sides) > 1 or None in sides or counts[::2] != counts[1::2]:
        each = ", ".join(f"{path} ({count:,} lines)" for path, count in zip(paths, counts, strict=True))
        raise ConfigError(
            f"{each}: by their names these are parallel texts, which come in pairs with as many lines, source and "
            "target; --set data.format=text reads them as running text instead"
        )
    return "pairs", {"format": "parallel", "header": list(sides.pop() or ())}


def _sides(a: Path, b: Path, alone: bool) -> tuple[str, str] | None:
    """What each side is called, if two names differ in that alone: train.en and train.de, or en.txt and de.txt.

    Where there are but these two files, any suffixes will do.
    """
    names = [re.split(r"([/._-])", str(path.with_suffix("") if path.suffix in PACKED else path)) for path in (a, b)]
    different = [pair for pair in zip(*names, strict=False) if pair[0] != pair[1]]
    if len(names[0]) != len(names[1]) or len(different) != 1:
        return None
    ((one, other),) = different
    suffixes = alone and (one, other) == (_suffix(a).lstrip("."), _suffix(b).lstrip("."))
    return (one, other) if suffixes or {one.lower(), other.lower()} <= SIDES else None


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
