"""What a model folder says about itself, read without torch: its config, the headers of its weights, its card.

The card, README.md, begins with lines that a list of models shows:

    ---
    about: "Translates everyday sentences between English and German."
    license: "CC-BY-SA-4.0"
    score: "what was measured, and on which test"
    ---

They are YAML, which Hugging Face's Hub reads too (hence `license`). Here only texts are read, one to a line.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError
from cutaway.files import MEGABYTE, parse_json, plain_child, read_bytes, read_json, regular_size

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
STORED = {"I8": "int8", "BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}
FENCE = "---"
LARGEST = 100 * MEGABYTE  # of a header; the safetensors library reads no larger one


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One line of the list of models. What is not known is None."""

    name: str
    folder: Path
    about: str | None = None
    family: str | None = None
    task: str | None = None
    parameters: int | None = None  # None for the layouts of others, who may store some twice
    stored: str | None = None  # what most of its numbers are: int8, bf16, fp32 …
    size: int = 0  # bytes of the files in its folder
    licence: str | None = None
    score: str | None = None
    problem: str | None = None  # why it cannot be read

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def look_at(name: str, folder: Path) -> ModelInfo:
    """A damaged folder is listed with its problem, and does not hide the others."""
    known: dict[str, Any] = {"name": name, "folder": folder}
    try:
        known["size"] = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        card = card_of(folder)
        known |= {"about": card.get("about"), "licence": card.get("license"), "score": card.get("score")}
        config = read_json(folder / "config.json")
        known |= {"family": _text(config.get("family", config.get("model_type"))), "task": _text(config.get("task"))}
        parameters, known["stored"] = _numbers(folder)
        return ModelInfo(**known, parameters=parameters if "family" in config else None)
    except (CheckpointError, OSError) as error:
        return ModelInfo(**known, problem=str(error))


def stored_as(folder: Path) -> str | None:
    """What most numbers of a folder's weights are: int8, bf16, fp32 …; None if that cannot be read."""
    try:
        return _numbers(folder)[1]
    except (CheckpointError, OSError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _numbers(folder: Path) -> tuple[int, str | None]:
    """How many numbers a folder holds, without the scales of those in 8 bits, and how most of them are stored."""
    if (folder / SINGLE).exists():
        files = [folder / SINGLE]
    else:
        shards = read_json(folder / INDEX).get("weight_map")
        named = {str(shard) for shard in shards.values()} if isinstance(shards, dict) else set()
        files = [plain_child(folder, name) for name in sorted(named)]
    entries: dict[str, Any] = {}
    for file in files:
        entries |= _header(file)
    counts: Counter[str] = Counter()
    for name, entry in entries.items():
        matrix = entries.get(name.removesuffix(".scale"))
        if matrix is entry or matrix is None or matrix["dtype"] != "I8":
            counts[entry["dtype"]] += prod(entry["shape"])
    return counts.total(), STORED.get(counts.most_common(1)[0][0]) if counts else None


def _header(path: Path) -> dict[str, Any]:
    """Name → dtype and shape, as a .safetensors file says before its numbers; `load` looks closer."""
    size = regular_size(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST, size - 8):
            raise CheckpointError(f"{path} is not a sound safetensors file: its header does not fit into it")
        header = parse_json(file.read(length), f"the header of {path}")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        match entry:
            case {"dtype": str(), "shape": [*sides], "data_offsets": [int(), int(stop)]} if (
                all(isinstance(side, int) for side in sides) and 8 + length + stop <= size
            ):
                continue
        raise CheckpointError(f"{path}: {name!r} has no dtype, shape and place inside of the file")
    return header


def front_matter(values: Mapping[str, str | None]) -> str:
    """The lines for what is known, ready to stand before a card."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value]
    return "\n".join([FENCE, *lines, FENCE, ""])


def read_front_matter(text: str) -> dict[str, str]:
    """Key → text; lists, and whatever else is more than a text on its line, are left out."""
    first, *lines = text.removeprefix("\ufeff").split("\n")
    found: dict[str, str] = {}
    if first.strip() != FENCE or FENCE not in (line.strip() for line in lines):
        return found
    for line in lines:
        if line.strip() == FENCE:
            break
        key, colon, value = line.partition(":")
        value = _scalar(value.strip())
        if colon and value and key == key.strip() and not key.startswith("#"):
            found[key] = value
    return found


def card_of(folder: Path) -> dict[str, str]:
    """What the card in a model's folder says at its top; nothing if there is no card."""
    file = folder / "README.md"
    return read_front_matter(read_bytes(file, MEGABYTE).decode("utf-8", "replace")) if file.is_file() else {}


def _scalar(value: str) -> str:
    """A YAML scalar: JSON's strings are among them, so are bare words, and 'single quotes'."""
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return ""
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return "" if value.startswith(("[", "{", "|", ">", "&", "*", "!")) else value
