"""Recipes as TOML files: read with changes on top, checked, and written.

    recipe = read_recipe(Path("recipes/shakespeare.toml"), ["train.steps=200", "model.d_model=256"])

Unknown keys are refused, so that a misspelt one is noticed. The recipe, with all defaults filled in, is saved with the
model.
"""

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cutaway.errors import CheckpointError, ConfigError
from cutaway.files import MEGABYTE, read_bytes
from cutaway.training.recipe import Recipe, unknown_key
from cutaway.training.recipe_checks import check_recipe

MOST_NESTED = 8  # tables and lists
MOST_BYTES = 4 * MEGABYTE
MOST_PARTS = 8  # of a dotted key: the time to read one grows with the square of its parts

# A text without its end is one, too: to look for others in it would take the square of its length.
_TEXT = re.compile(r'"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'|#[^\n]*+')
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")

T = TypeVar("T")


def read_recipe(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """The recipe in a TOML file, with `a.b=c` changes on top."""
    values = read_toml(path)
    for text in changes:
        change(values, text)
    return recipe_from(values, str(path))


def recipe_from(values: Mapping[str, Any], where: str = "the recipe") -> Recipe:
    """The recipe with these values; unknown keys and values of the wrong type are refused."""
    _check_values(values, "", where)
    recipe = read_part(Recipe, values, "", where)
    check_recipe(recipe, where)
    return recipe


def _check_values(value: Any, name: str, where: str) -> None:
    """Refuses values that no key can have, or that could not be written and read again."""
    if name.count(".") + name.count("[") > MOST_NESTED:
        raise ConfigError(f"{where}: {name[:40]}… is nested too deeply")
    match value:
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ConfigError(f"{where}: the key {key!r} in [{name}] is not a string")
                _check_values(inner, f"{name}.{key}" if name else key, where)
        case list() | tuple():
            for i, item in enumerate(value):
                _check_values(item, f"{name}[{i}]", where)
        case float() if not math.isfinite(value):
            raise ConfigError(f"{where}: {name}={value} is not a finite number")
        case int() if abs(value) >= 1 << 63:
            raise ConfigError(f"{where}: {name} has more than 64 bits")
        case str() if not is_utf8(value):
            raise ConfigError(f"{where}: {name}={value!r} is not UTF-8: rename the file, if it is the name of one")


def is_utf8(text: str) -> bool:
    """Whether a text can be written; half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def change(values: dict[str, Any], text: str) -> None:
    """Sets `train.steps=200`: the value is read as TOML if it is TOML, else as a string."""
    name, equals, value_text = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set {text!r}: write it as a.b=c")
    try:
        value = parse_toml(f"value = {value_text}", f"--set {name}")["value"]
    except ConfigError:
        value = value_text
    *tables, key = name.strip().split(".", MOST_NESTED)
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {text!r}: {table!r} is not a table")
    values[key] = value


def read_part(kind: type[T], values: Any, name: str, where: str) -> T:
    """A table of a recipe, or the whole recipe, from its values."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: {name} is a table: write it as [{name}]")
    prefix = f"{name}." if name else ""
    hints = get_type_hints(kind)
    known = {part.name: hints[part.name] for part in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = dict(values)
    if "changes" in known and isinstance(values.get("changes", {}), Mapping):
        # unknown keys of this table are settings of the model
        rest = {key: values.pop(key) for key in list(values) if key not in known}
        if twice := sorted(set(rest) & set(values.get("changes", {}))):
            raise ConfigError(f"{where}: {prefix}{twice[0]} and {prefix}changes.{twice[0]} are the same: leave one out")
        values["changes"] = {**values.get("changes", {}), **rest}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"{where}: {unknown_key(unknown[0], f'[{name}]' if name else 'the top', sorted(known))}")
    return kind(**{key: _converted(known[key], value, prefix + key, where) for key, value in values.items()})


def _converted(kind: Any, value: Any, name: str, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return read_part(kind, value, name, where)  # type: ignore[arg-type]
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        (kind,) = (inner for inner in get_args(kind) if inner is not type(None))
    if get_origin(kind) is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_converted(get_args(kind)[0], item, name, where) for item in items)
    if get_origin(kind) is dict and isinstance(value, Mapping):
        return dict(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        wanted = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{where}: {name}={value!r} is not {wanted}")
    return value


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe, every value written out."""
    lines: list[str] = []
    tables: list[tuple[str, Mapping[str, Any]]] = [("", recipe.to_dict())]
    while tables:
        name, values = tables.pop(0)
        lines += [f"\n[{name}]"] if name else []
        for key, value in values.items():
            if isinstance(value, Mapping) and key != "changes":
                tables.append((key, value))
        flat = {**{k: v for k, v in values.items() if not isinstance(v, Mapping)}, **values.get("changes", {})}
        lines += [f"{key} = {toml_value(value)}" for key, value in flat.items() if value is not None]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # JSON writes inf differently
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a file."""
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except CheckpointError as error:
        raise ConfigError(str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return parse_toml(text.replace("\r\n", "\n"), str(path))


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The content of a text; `where` names it in errors."""
    if key := _LONG_KEY.search(_TEXT.sub("_", text)):
        raise ConfigError(f"{where} is not a recipe: the key {key[0][:40]}… has more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply to be a recipe") from None
    except ValueError as error:  # a TOMLDecodeError is one, and so is a number of too many digits
        raise ConfigError(f"{where} is not valid TOML: {error}") from None
