"""Recipes for files without a recipe: the names and the contents of the files decide what is trained.

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
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from cutaway.data.table_files import SUFFIXES
from cutaway.errors import ConfigError, InputError
from cutaway.training.recipe import DataPart, ModelPart, Recipe
from cutaway.training.recipe_file import change, read_part, recipe_from

PACKED = (".gz", ".xz")
PACKING = 3  # how much shorter packed text is, about
SMALL_TEXT = 200_000  # bytes: too little to learn word pieces from, so characters are used
TOKEN = 4  # characters of a word piece, about
EPOCHS = {"text": 40, "pairs": 40, "labels": 20, "images": 40}  # at most
LEAST_STEPS = 200
GENTLE = {"kind": "adamw", "rate": 1e-4, "betas": [0.9, 0.98], "weight_decay": 0.01}
COLUMNS = (
    "columns named source and target, or text and label (and second, for pairs), are needed; give other names with "
    "--set data.text=… --set data.label=…, or data.source and data.target; if line 1 has no names, --set "
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

# A name's parts; en-US, pt_BR and zh-Hans are one.
PARTS = r"([/.]|[-_](?!(?<=[/._-]..[-_])(?:[A-Z]{2}|[A-Z][a-z]{3})(?:[/._-]|$)))"


def recipe_for(paths: Sequence[Path], changes: Iterable[str] = ()) -> Recipe:
    """The recipe that fits these files, with `a.b=c` changes on top.

    Steps, warm-up and evaluations are scaled to the size of the data, unless they are set.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: give a recipe (.toml), or files to train on")
    where = f"the recipe for {', '.join(map(str, paths))}"
    given: dict[str, Any] = {"data": {}, "model": {}}
    changes = list(changes)
    for text in changes:
        change(given, text)
    kind, data = _data_of(paths, given["data"], where)
    values = tomllib.loads(files(__package__).joinpath(f"{kind}.toml").read_text(encoding="utf-8"))
    values["data"] |= {"root": "", "train": [os.fspath(path) for path in paths], **data}
    if kind == "text" and sum(path.stat().st_size for path in paths) < SMALL_TEXT:
        values["tokenizer"] = {"kind": "char"}
    if read_part(ModelPart, given["model"], "model", where).start is not None:
        values["model"] = {}  # a trained model has its own size and tokenizer …
        values.pop("tokenizer", None)
        values["optimizer"] = dict(GENTLE)  # … and would forget what it has learnt at the rate of a new one
    for text in changes:
        change(values, text)
    recipe = recipe_from(values, where)
    _scale(values, given, recipe, kind, paths)
    return recipe_from(values, where)


def _scale(values: dict[str, Any], given: dict[str, Any], recipe: Recipe, kind: str, paths: Sequence[Path]) -> None:
    """Fewer steps for little data, and warm-up and evaluations in proportion; what is `given` stays."""

    def lower(table: str, key: str, most: int) -> None:
        if key not in given.get(table, {}):
            values.setdefault(table, {})[key] = max(1, min(getattr(getattr(recipe, table), key), most))

    steps = recipe.train.steps
    if "steps" not in given.get("train", {}):
        epoch = _steps_per_epoch(recipe, kind, paths, most=-(-steps // EPOCHS[kind]))
        steps = min(steps, max(LEAST_STEPS, EPOCHS[kind] * epoch))
        values["train"]["steps"] = steps
    lower("schedule", "warmup", steps // 10)
    lower("evaluate", "every", steps // 8)


def _steps_per_epoch(recipe: Recipe, kind: str, paths: Sequence[Path], most: int) -> int:
    """About how many steps an epoch has, or `most`: no more of the files is read."""
    t = recipe.train
    if kind == "text":
        characters = 1 if recipe.tokenizer.kind == "char" else TOKEN
        return min(most, -(-_n_bytes(paths) // (characters * t.tokens)))
    if kind == "images":
        from cutaway.training.datasets.images import read_images

        rows = t.rows or 256
        return min(most, -(-len(read_images(list(paths), size=recipe.data.image_size)) // rows))
    from cutaway.data.table_files import text_of
    from cutaway.training.datasets.tables import Tables

    tables, tokens, n = Tables(recipe, lambda note: None), 0, 0
    n_most = most * (t.rows or t.tokens)
    for row in islice(tables.rows(recipe.data.train), n_most):
        tokens += sum(len(text_of(row[name])) // TOKEN + 2 for name in tables.columns)
        n += 1
        if tokens >= most * t.tokens:
            return most
    by_rows = 0 if t.rows is None else -(-n // t.rows)
    return min(most, max(by_rows, -(-tokens // t.tokens)))


def _n_bytes(paths: Sequence[Path]) -> int:
    """The size of some texts, about: packed files are not unpacked for it."""
    return sum(path.stat().st_size * (PACKING if path.suffix in PACKED else 1) for path in paths)


def _data_of(paths: Sequence[Path], given: Any, where: str) -> tuple[str, dict[str, Any]]:
    """text, pairs, labels or images, and the values of [data] for them; `given` are those that the user set."""
    d, named = read_part(DataPart, given, "data", where), set(given)
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
    """Pairs, if the names say that files are parallel; a mixture is refused."""
    if len(d.header) == 2:
        return "pairs", {"format": "parallel"}
    if not any(_sides(a, b, alone=len(paths) == 2) for a, b in combinations(paths, 2)):
        return ("pairs" if d.format == "parallel" else "text"), {}
    sides = {_sides(a, b, alone=len(paths) == 2) for a, b in zip(paths[::2], paths[1::2], strict=False)}
    from cutaway.data.text_files import read_lines

    counts = [sum(1 for _ in read_lines(path)) for path in paths]
    if len(paths) % 2 or len(sides) > 1 or None in sides or counts[::2] != counts[1::2]:
        each = ", ".join(f"{path} ({count:,} lines)" for path, count in zip(paths, counts, strict=True))
        raise ConfigError(
            f"{each}: by their names these are parallel texts, which come in pairs, source and target, with equally "
            "many lines; --set data.format=text reads them as running text instead"
        )
    return "pairs", {"format": "parallel", "header": list(sides.pop() or ())}


def _sides(a: Path, b: Path, alone: bool) -> tuple[str, str] | None:
    """The names of two sides, if the files' names differ only in them: train.en and train.de, or en.txt and de.txt.

    If there are only these two files, any suffixes will do.
    """
    names = [re.split(PARTS, f"/{path.with_suffix('') if path.suffix in PACKED else path}") for path in (a, b)]
    different = [pair for pair in zip(*names, strict=False) if pair[0] != pair[1]]
    if len(names[0]) != len(names[1]) or len(different) != 1:
        return None
    ((one, other),) = different
    suffixes = alone and (one, other) == (_suffix(a).lstrip("."), _suffix(b).lstrip("."))
    languages = {re.split("[-_]", side)[0].lower() for side in (one, other)}
    return (one, other) if suffixes or languages <= SIDES else None


def _table(path: Path, d: DataPart, named: set[str]) -> tuple[str, dict[str, Any]]:
    from cutaway.data.table_files import read_table
    from cutaway.training.datasets.tables import table_format

    columns = next(iter(read_table(path, **table_format(d))), {}).keys()
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
