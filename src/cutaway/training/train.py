"""`cutaway.train`: the Python call behind `cutaway train`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from cutaway.arguments import checked
from cutaway.errors import ConfigError
from cutaway.training.recipe import Recipe, unknown_key
from cutaway.training.recipe_file import change, read_recipe, recipe_from, toml_value
from cutaway.training.run_folder import RunFolder
from cutaway.training.run_log import Listener
from cutaway.training.trainer import Outcome, Trainer

TABLES = {name: kind for name, kind in get_type_hints(Recipe).items() if is_dataclass(kind)}


@checked
def train(
    what: Recipe | str | Path | Sequence[str | Path] | None,
    out: str | Path,
    *,
    resume: bool = False,
    listeners: list[Listener] | None = None,
    **changes: Any,
) -> Outcome:
    """Trains on files, or as a recipe says, and writes a model folder to `out`.

        cutaway.train("novel.txt", "my-model", steps=500)
        cutaway.train(["train.en", "train.de"], "translator", model={"d_model": 128}, seed=1)
        cutaway.train("recipes/shakespeare.toml", "shakespeare")
        cutaway.train(None, "shakespeare", resume=True)

    `what` is a recipe (a path that ends in .toml, or a `Recipe`) or one or several files of data. Further keywords
    change values of the recipe: a key that only one of its tables has (`steps`, `rate`), or a whole table with its
    keys. With `resume` a stopped run goes on; it needs no `what`. Listeners get every event of the run log.
    """
    if isinstance(what, Recipe):
        recipe = recipe_from(_with_changes(what.to_dict(), as_options(changes))) if changes else what
    else:
        paths = [what] if isinstance(what, str | Path) else what or []
        recipe = choose_recipe([Path(path) for path in paths], Path(out), as_options(changes), resume=resume)
    trainer = Trainer(recipe, Path(out), listeners or [])
    with trainer.open(resume):
        return trainer.run_to_end()


def choose_recipe(paths: Sequence[Path], out: Path, changes: Sequence[str], *, resume: bool) -> Recipe:
    """The recipe in a file, the one that fits files of data, or the one of the run to resume, with `a.b=c` changes."""
    if len(paths) == 1 and paths[0].suffix == ".toml":
        return read_recipe(paths[0], changes)
    if resume:
        folder = RunFolder(out)
        folder.check(resume=True)
        values = folder.read_recipe_values()
        if not paths or [str(path) for path in paths] == list(values.get("data", {}).get("train", ())):
            return recipe_from(_with_changes(values, changes), str(folder.recipe))
    if not paths:
        raise ConfigError("name a recipe (.toml) or files to train on, or continue the run in --out with --resume")
    from cutaway.training.presets import recipe_for

    return recipe_for(paths, changes)


def as_options(changes: Mapping[str, Any]) -> list[str]:
    """Keywords as options of --set: steps=200 is train.steps=200."""
    options = []
    for name, value in changes.items():
        if name in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"{name}={value!r} is a table of the recipe: {name}={{'key': value}}")
        keys = {f"{name}.{key}": inner for key, inner in value.items()} if name in TABLES else {_full_name(name): value}
        for key, inner in keys.items():
            if inner is None:
                raise ConfigError(f"{key}=None: leave it out")
            options.append(f"{key}={toml_value(inner)}")
    return options


def _full_name(key: str) -> str:
    """steps → train.steps; a key of several tables has to be given with its table."""
    if key in get_type_hints(Recipe):
        return key
    tables = [name for name, kind in TABLES.items() if key in {part.name for part in fields(kind)}]
    if not tables:
        known = sorted({part.name for kind in TABLES.values() for part in fields(kind)} | set(get_type_hints(Recipe)))
        raise ConfigError(unknown_key(key, "recipes", known))
    if len(tables) > 1:
        both = " or ".join(f"{table}={{{key!r}: …}}" for table in tables)
        raise ConfigError(f"{key} is a key of several tables: say {both}")
    return f"{tables[0]}.{key}"


def _with_changes(values: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The values of a recipe with `a.b=c` changes on top."""
    merged = {
        name: {**value, **value.get("changes", {})} if isinstance(value, Mapping) else value
        for name, value in values.items()
    }
    for table in merged.values():
        if isinstance(table, dict):
            table.pop("changes", None)
    for text in changes:
        change(merged, text)
    return merged
