"""Images: the picture, its patches, and the evidence that each patch gave; or where heads of a ViT look."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from cutaway.errors import InputError
from cutaway.pictures.colour import Scale, data_uri, png, ramp
from cutaway.pictures.html import Table
from cutaway.pictures.picture import Picture, set_field, strongest
from cutaway.pictures.picture_data import Array, check_numbers, number
from cutaway.pictures.svg import Markup, Value, hatch, legend, pixels, tag, text_label
from cutaway.pictures.terminal import text_map

SIDE, GAP, LEFT = 224.0, 18.0, 4.0
LARGEST_IMAGE, MAPS = 512 * 512 * 3, 12
SEEN = 256  # pixels of a side, at most, as drawn


@dataclass(frozen=True, eq=False)
class PatchEvidence(Picture):
    """An image beside its maps: for each name evidence per patch, patch-row × patch-column.

        PatchEvidence(image, {"for 7": evidence, "against 1": other})

    `image` is height width, height width rgb or rgb height width; 8-bit integers, or numbers from 0 to 1.
    """

    kind: ClassVar[str] = "image"

    image: Any
    maps: Mapping[str, Any]
    title: str = ""
    what: str = "evidence"
    colours: str = "auto"
    root: bool = False

    def __post_init__(self) -> None:
        if not self.maps:
            raise InputError("there are no maps: give at least one, by name")
        if len(self.maps) > MAPS:
            raise InputError(f"{len(self.maps)} maps are more than {MAPS}: make two pictures")
        maps = {str(k): check_numbers(f"the map {k!r}", v, "patch row", "patch column") for k, v in self.maps.items()}
        if len({value.shape for value in maps.values()}) > 1:
            raise InputError("the maps have several shapes: the patches of one image are the same for all")
        set_field(self, "image", _pixels(self.image))
        set_field(self, "maps", maps)

    @cached_property
    def stacked(self) -> Array:
        return np.stack(list(self.maps.values()))

    @cached_property
    def scale(self) -> Scale:
        return Scale.of(self.stacked, self.colours, root=self.root)

    def sentence(self) -> str:
        _, rows, columns = self.stacked.shape
        height, width = self.image.shape[:2]
        said = f"An image of {height} × {width} pixels in {rows} × {columns} patches; colours are the {self.what}."
        for which, row, column in strongest(self.stacked, 1):
            value = number(float(self.stacked[which, row, column]))
            said += f" The strongest, {value} ({list(self.maps)[which]}), is in patch row {row}, column {column}."
        return said

    def table(self) -> Table:
        rows = [
            [f"{r}, {c}", *(number(float(value[r, c])) for value in self.maps.values())]
            for r, c in np.ndindex(self.stacked.shape[1:])
        ]
        return ["patch row, column", *self.maps], rows

    def overlay(self, values: Array) -> str:
        """The colour of each patch, the more opaque the further its number from 0; a hole where there is none."""
        steps = self.scale.steps(values)
        with np.errstate(invalid="ignore"):
            share = np.clip(np.abs(values) / (max(abs(self.scale.high), abs(self.scale.low)) or 1.0), 0, 1)
            share = np.sqrt(share) if self.root else share
        opaque = np.where(np.isfinite(values), 40 + 175 * np.nan_to_num(share), 0).astype(np.uint8)
        colours = ramp(self.scale.kind)[np.maximum(steps, 1) - 1]
        return data_uri(png(np.concatenate([colours, opaque[..., None]], axis=2)))

    def drawing(self) -> tuple[tuple[float, float], list[Markup]]:
        _, rows, columns = self.stacked.shape
        height, width = self.image.shape[:2]
        many = len(self.maps) > 3
        side = 132.0 if many else SIDE
        across, down = side, side * height / width
        per_row = min(len(self.maps) + 1, 6 if many else 4)
        photo = data_uri(png(_shrunk(self.image)))
        parts: list[Markup] = []
        holes = not np.isfinite(self.stacked).all()
        for i, (name, values) in enumerate([("the image", None), *self.maps.items()]):
            x = LEFT + (i % per_row) * (across + GAP)
            y = 24 + (i // per_row) * (down + 34)
            box: dict[str, Value] = {"x": x, "y": y, "width": across, "height": down}
            parts += [text_label(name, x, y - 8, 24, class_="strong"), pixels(photo, **box)]
            if values is not None:
                parts.append(pixels(self.overlay(values), **box))
                for r, c in np.argwhere(~np.isfinite(values)).tolist():
                    parts.append(hatch(x + c * across / columns, y + r * down / rows, across / columns, down / rows, 6))
            parts.append(_lattice(x, y, across, down, rows, columns))
        below = 24 + -(-(len(self.maps) + 1) // per_row) * (down + 34) - 20
        parts.append(legend(self.scale, LEFT, below, holes, self.what))
        return (max(per_row * (across + GAP), 420.0), below + 34), parts

    def text(self, width: int = 80, colour: bool = False) -> str:
        rows, columns = (tuple(map(str, range(n))) for n in self.stacked.shape[1:])
        drawn = [text_map(v, rows, columns, self.scale, width, colour, name) for name, v in self.maps.items()]
        return "\n\n".join([self.heading, *drawn])


def _lattice(x: float, y: float, width: float, height: float, rows: int, columns: int) -> Markup:
    if rows * columns > 1024:
        return Markup("")
    lines = [f"M{x + c * width / columns:.1f} {y:.1f}v{height:.1f}" for c in range(1, columns)]
    lines += [f"M{x:.1f} {y + r * height / rows:.1f}h{width:.1f}" for r in range(1, rows)]
    return (
        tag("path", d="".join(lines), stroke="#8b949e", stroke_width="0.6", stroke_opacity="0.55", fill="none")
        if lines
        else Markup("")
    )


def _shrunk(image: Array) -> Array:
    """As many pixels as a drawing shows: means over squares."""
    step = -(-max(image.shape[:2]) // SEEN)
    if step == 1:
        return image
    rows, columns = (np.arange(0, n, step) for n in image.shape[:2])
    total = np.add.reduceat(np.add.reduceat(image.astype(np.float64), rows, axis=0), columns, axis=1)
    ones = np.add.reduceat(np.add.reduceat(np.ones(image.shape[:2]), rows, axis=0), columns, axis=1)
    return np.rint(total / ones.reshape(*ones.shape, *[1] * (image.ndim - 2))).astype(np.uint8)


def _pixels(image: Any) -> Array:
    """Bytes, height width or height width rgb."""
    given = image.detach().cpu().float().numpy() if hasattr(image, "detach") else np.asarray(image)
    if given.ndim == 3 and given.shape[0] in (1, 3) and given.shape[2] not in (1, 3):
        given = np.moveaxis(given, 0, 2)
    if given.ndim == 3 and given.shape[2] == 1:
        given = given[..., 0]
    if given.ndim not in (2, 3) or (given.ndim == 3 and given.shape[2] != 3) or not given.size:
        raise InputError(
            f"the image has shape {given.shape}: needed are height width, height width rgb or rgb height width"
        )
    if given.size > LARGEST_IMAGE:
        raise InputError(f"the image has {given.size:,} numbers; at most {LARGEST_IMAGE:,}: make it smaller")
    if given.dtype == np.uint8:
        return given
    if not np.isfinite(given).all() or given.min() < 0 or given.max() > 255:
        raise InputError(
            "the image must have 8-bit integers, or numbers from 0 to 1: undo the model's normalisation first"
        )
    whole = given.max() > 1
    return np.rint(given if whole else given * 255).astype(np.uint8)
