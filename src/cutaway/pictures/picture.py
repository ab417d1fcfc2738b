"""What every kind of picture can do: be drawn, stand in a page, a notebook or a terminal, be saved and read back."""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, ClassVar, TextIO, get_args, get_origin

import numpy as np

from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, damage, naming, parse_json, read_bytes, replacing
from cutaway.pictures.html import Table, figure, page, scroller
from cutaway.pictures.picture_data import Array, number, pack_array, to_json, unpack_array, visible_text
from cutaway.pictures.svg import Markup, document

KINDS: dict[str, type["Picture"]] = {}


@dataclass(frozen=True, eq=False)
class Picture(ABC):
    """A kind of picture gives its data as fields, and `sentence`, `table`, `drawing` and `text`."""

    kind: ClassVar[str] = ""
    role: ClassVar[str] = "img"  # "group" where parts of the drawing can be chosen

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    @property
    def heading(self) -> str:
        return visible_text(getattr(self, "title", "")) or self.kind.capitalize()

    @abstractmethod
    def sentence(self) -> str:
        """What one would say of the picture to someone who cannot see it."""

    @abstractmethod
    def table(self) -> Table:
        """The numbers, or where they are too many for a table the strongest."""

    @abstractmethod
    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        """Its size and its parts."""

    @abstractmethod
    def text(self, width: int = 80, colour: bool = False) -> str:
        """The picture in letters, with ANSI colours if asked for."""

    def body(self) -> Markup:
        """What stands in the page; a drawing unless the kind knows better."""
        size, parts = self.drawing()
        svg = document(size, self.heading, self.sentence(), *parts, role=self.role)
        return scroller(svg, self.heading)

    def svg(self) -> str:
        """A file of its own: a title, a description, a style for light and dark, and its numbers."""
        size, parts = self.drawing()
        drawn = document(size, self.heading, self.sentence(), *parts, data=to_json(self.to_dict()), role=self.role)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + drawn + "\n"

    def html(self) -> str:
        """A page of its own that needs nothing else."""
        return page(self.heading, self._repr_html_())

    def _repr_html_(self) -> Markup:
        return figure(self.heading, self.sentence(), self.body(), self.table(), to_json(self.to_dict()))

    def __str__(self) -> str:
        return self.text()

    def show(self, file: TextIO | None = None) -> None:
        """Prints it, in colours where the reader is a terminal that wants them."""
        file = file or sys.stdout
        colour = file.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        width = os.get_terminal_size(file.fileno()).columns if file.isatty() else 80
        print(self.text(width, colour), file=file)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON, numbers as `pictures.picture_data` says."""
        return {"kind": self.kind, **{field.name: _packed(getattr(self, field.name)) for field in fields(self)}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Picture":
        kind = _kind_of(str(data.get("kind")))
        if kind is None:
            raise CheckpointError(f"{data.get('kind')!r} is no kind of picture: {', '.join(filter(None, KINDS))}")
        given = {name: _unpacked(value) for name, value in data.items() if name != "kind"}
        known = {field.name for field in fields(kind)}
        needed = {field.name for field in fields(kind) if field.default is MISSING}
        if not needed <= given.keys() <= known:
            odd = ", ".join(sorted((given.keys() - known) | (needed - given.keys())))
            raise CheckpointError(f"this is no {kind.kind} as we write it: look at {odd}")
        for field in fields(kind):
            if field.name in given and not _fits(given[field.name], field.type):
                raise CheckpointError(f"the {field.name} of this {kind.kind} is of another kind than we write")
        with damage(f"this {kind.kind}"):
            return kind(**given)

    def save(self, path: str | Path) -> Path:
        """Writes .html, .svg, .txt or .json, whole or not at all."""
        path = Path(path)
        writers = {
            ".html": self.html,
            ".svg": self.svg,
            ".txt": lambda: self.text(width=100) + "\n",
            ".json": lambda: to_json(self.to_dict()) + "\n",
        }
        writer = writers.get(path.suffix.lower())
        if writer is None:
            raise InputError(f"{path.name}: a picture is saved as {', '.join(writers)}")
        made = writer()
        with replacing(path) as temporary:
            temporary.write_text(made, encoding="utf-8", newline="\n")
        return path


def _kind_of(name: str) -> type[Picture] | None:
    """The class of this kind. Classes are imported when they are first used, so perhaps none is known yet."""
    if name not in KINDS:
        from cutaway import pictures

        for each in pictures.__all__:
            getattr(pictures, each)
    return KINDS.get(name)


def read_picture(path: str | Path) -> Picture:
    """The picture that was saved as .html, .svg or .json, with its numbers."""
    text = read_bytes(Path(path), 16 * MEGABYTE).decode("utf-8", "replace")
    found = re.search(r'class="cutaway-data"[^>]*>([^<]*)<', text)
    data = unescape(found[1]) if found else text
    with naming(path):
        picture = Picture.from_dict(parse_json(data.encode(), str(path)))
        with damage(f"this {picture.kind}", "cannot be drawn"):
            picture.drawing()
        return picture


def value_range(values: Array, what: str = "") -> str:
    """How many numbers there are, and from where to where."""
    shape = " × ".join(map(str, values.shape))
    what = f"numbers ({what})" if what else "numbers"
    finite = values[np.isfinite(values)]
    if not finite.size:
        return f"{shape} {what}, none of them finite."
    missing = values.size - finite.size
    ends = f"from {number(finite.min())} to {number(finite.max())}" if finite.size > 1 else number(finite.max())
    return f"{shape} {what}, {ends}." + (
        f" {missing:,} more {'has' if missing == 1 else 'have'} none." if missing else ""
    )


def strongest(values: Array, most: int) -> list[tuple[int, ...]]:
    """Where the numbers furthest from 0 are, the furthest first; equal ones in reading order."""
    size = np.where(np.isfinite(values), np.abs(values), -1).ravel()
    n = min(most, int((size >= 0).sum()))
    if n < size.size // 4:  # no need to sort them all
        least = np.partition(size, size.size - n)[size.size - n] if n else 0
        near = np.flatnonzero(size >= least)
    else:
        near = np.flatnonzero(size >= 0)
    order = near[np.argsort(-size[near], kind="stable")][:n]
    return [tuple(map(int, place)) for place in zip(*np.unravel_index(order, values.shape), strict=True)]


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return pack_array(value)
    if isinstance(value, dict):
        return {name: _packed(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_packed(inner) for inner in value]
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return unpack_array(value) if "shape" in value else {name: _unpacked(inner) for name, inner in value.items()}
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a file is of the kind that a field says."""
    inner = get_args(kind)
    if kind is Any or isinstance(value, np.ndarray):
        return True
    if get_origin(kind) is Sequence:
        return isinstance(value, list | tuple) and all(_fits(one, inner[0]) for one in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if isinstance(value, bool):
        return kind is bool or bool in inner
    return isinstance(value, kind)


set_field = partial(object.__setattr__)  # a frozen dataclass puts its fields in order once, when it is made
