"""Models that come along, and how a name finds one. There is no torch here, so that a list is there at once.

bundled/NAME/       a model folder: config.json, weights, tokenizer.json, README.md (its card), LICENSE
CUTAWAY_MODELS      further folders of such folders, with `:` between (`;` on Windows); they are looked at first

What a list of models shows is read from the folders (see `info`): what a model is from config.json, how many numbers it
has from the headers of its weights, and what it is good for from its card.
"""

import os
from difflib import get_close_matches
from pathlib import Path

from cutaway.bundled.info import ModelInfo, look_at
from cutaway.errors import CheckpointError
from cutaway.folders import finish_replacing

HERE = Path(__file__).parent
VARIABLE = "CUTAWAY_MODELS"


def models() -> list[ModelInfo]:
    """The models that have a name here: what they do, their size, their licence, their score."""
    return [look_at(name, folder) for name, folder in sorted(names().items())]


def names() -> dict[str, Path]:
    """Name → folder, of all places where models are looked for; of two with one name, the first place's counts."""
    found: dict[str, Path] = {}
    further = os.environ.get(VARIABLE, "").split(os.pathsep)
    for place in (*(Path(place).expanduser() for place in further if place), HERE):
        try:
            folders = sorted(place.iterdir())
        except OSError:  # a place that cannot be read
            continue
        for folder in folders:
            if (folder / "config.json").is_file():
                found.setdefault(folder.name, folder)
    return found


def find(model: Path | str) -> Path:
    """A path that exists, or the folder of the model with that name; a folder that holds no model is passed over."""
    finish_replacing(Path(model))
    path, found = Path(model), names().get(str(model))
    if os.path.exists(path) and (found is None or not path.is_dir() or (path / "config.json").exists()):
        return path
    if found is not None:
        return found
    raise CheckpointError(f"{model} does not exist: give a model's folder or file{said(', or a name: {}', model)}")


def said(form: str, model: Path | str) -> str:
    """The end of an error: the names that may have been meant, in `form`. What has a / in it is a path."""
    known = sorted(names())
    if not known or {*str(model)} & {os.sep, os.altsep}:
        return ""
    near = get_close_matches(str(model), known, n=1, cutoff=0.4)
    return form.format(", ".join(known) + (f" (did you mean {near[0]!r}?)" if near else ""))
