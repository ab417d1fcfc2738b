"""Images → arrays of bytes on the disk, decoded once and mapped into memory from then on.

    images = image_folder(Path("flowers"), size=224)         # a folder for each class
    images = idx_images(Path("train-images-idx3-ubyte.gz"), Path("train-labels-idx1-ubyte.gz"))
    images = npz_images(Path("train.npz"))                   # images and labels, or jpeg_bytes, offsets and labels
    images.pixels[0]                                         # channel × height × width, 0 … 255

The sizes in a header are compared with the file before anything is allocated.
"""

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.data.array_files import Member, Npz, open_idx
from cutaway.data.cache import Array, cached, facts, open_array
from cutaway.errors import InputError, MissingExtra
from cutaway.files import MEGABYTE, damage

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MOST_PIXELS = 1 << 26  # of one image: 8192 × 8192
MOST_CLASSES = 1 << 20
AT_A_TIME = 16

Size = tuple[int, int]  # height, width


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size with their classes; `names[labels[i]]` is what image i shows."""

    pixels: NDArray[np.uint8]  # image, channel, height, width
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.labels)


def image_folder(
    folder: Path,
    *,
    size: int | Size | None = None,
    channels: int | None = None,
    cache: Path | None = None,
) -> Images:
    """The images of a folder that has one folder for each class; classes and images in the order of their names.

    With `size`, each image is scaled until it covers that size, and then cropped at the centre; without it, all images
    must have the same size. `channels` is 3 (colour) or 1 (grey), by default what the first image has.
    """
    paths, classes, names = _listed(folder)
    settings = {
        "kind": "image folder",
        "size": _size(size),
        "channels": channels,
        "names": names,
        "classes": classes,
    }

    def build(target: Path) -> dict[str, Any]:
        pixels = _decoded(((str(path), path) for path in paths), _size(size), channels)
        return _write(target, pixels, [np.array(classes, np.int64)], str(folder))

    return _open(cached(paths, settings, build, cache), names)


def read_image(path: Path, *, size: int | Size | None = None, channels: int | None = None) -> NDArray[np.uint8]:
    """One image file as channel × height × width, by the rules of `image_folder`."""
    return next(_decoded(iter([(str(path), path)]), _size(size), channels))[0]


def decode_image(
    data: bytes, *, size: int | Size | None = None, channels: int | None = None, name: str = "the image"
) -> NDArray[np.uint8]:
    """The same of an image file's content; messages call it by its name."""
    return next(_decoded(iter([(name, data)]), _size(size), channels))[0]


def idx_images(images: Path, labels: Path, *, cache: Path | None = None) -> Images:
    """Images and labels from two idx files, as MNIST has them, plain or packed."""

    def build(target: Path) -> dict[str, Any]:
        with open_idx(labels, 1) as ((n_labels,), numbers), open_idx(images, 3) as ((n, height, width), chunks):
            _same_number(n, str(images), n_labels, str(labels))
            arrays = (np.frombuffer(chunk, np.uint8).reshape(-1, 1, height, width) for chunk in chunks)
            return _write(target, arrays, (np.frombuffer(some, np.uint8) for some in numbers), str(images))

    return _open(cached([images, labels], {"kind": "idx"}, build, cache))


def npz_images(
    path: Path,
    *,
    size: int | Size | None = None,
    channels: int | None = None,
    cache: Path | None = None,
) -> Images:
    """Images and labels from an npz archive.

    It holds `labels` and either `images` (bytes; axes image, height, width, and perhaps channel, after or before the
    last two) or `jpeg_bytes` and `offsets` (image i is jpeg_bytes[offsets[i]:offsets[i + 1]]). `size` and `channels`
    are those of `image_folder`, and apply to encoded images only.
    """

    def build(target: Path) -> dict[str, Any]:
        with Npz.opened(path) as archive, archive.open("labels") as labels:
            n, numbers = len(labels), labels.integers()
            if "images" not in archive.members:
                with archive.open("offsets") as offsets, archive.open("jpeg_bytes") as member:
                    _same_number(len(offsets) - 1, f"offsets of {path}", n, "its labels")
                    sources = ((f"{path}, image {i}", data) for i, data in enumerate(member.parts(offsets.integers())))
                    pixels = _decoded(sources, _size(size), channels)
                    return _write(target, pixels, numbers, str(path))
            if size is not None or channels is not None:
                raise InputError(f"{path} holds images as arrays: size and channels are for encoded images")
            with archive.open("images") as member:
                _same_number(len(member), member.where, n, "its labels")
                return _write(target, _stacked(member), numbers, str(path))

    settings = {"kind": "npz", "size": _size(size), "channels": channels}
    return _open(cached([path], settings, build, cache))


def _listed(folder: Path) -> tuple[list[Path], list[int], list[str]]:
    """The images of a folder of classes, the number of each one's class, and the names of the classes."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not classes:
        raise InputError(f"{folder} has no folders: give one that has a folder of images for each class")
    paths, numbers = [], []
    for number, of_class in enumerate(classes):
        files = sorted(
            path for path in of_class.rglob("*") if path.is_file() and not _is_left_by_system(path, of_class)
        )
        if not files:
            raise InputError(f"{of_class} has no images")
        for path in files:
            if path.suffix.lower() not in SUFFIXES:
                raise InputError(f"{path} is not an image ({', '.join(SUFFIXES)}): take it out of the folder")
        paths += files
        numbers += [number] * len(files)
    return paths, numbers, [of_class.name for of_class in classes]


def _is_left_by_system(path: Path, folder: Path) -> bool:
    """Whether a file is hidden, or one that Windows leaves in folders of pictures."""
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return hidden or path.name.lower() in ("thumbs.db", "desktop.ini")


def _stacked(member: Member) -> Iterator[Array]:
    """Chunks of an array of images, channels first."""
    _, *rest = member.shape
    if member.dtype != np.uint8 or len(rest) not in (2, 3) or 0 in rest:
        raise InputError(f"{member.where} is {member.header}; bytes of image, height, width (and channel) are expected")
    if len(rest) == 3 and rest[2] not in (1, 3) and rest[0] not in (1, 3):
        raise InputError(f"{member.where} is {member.header}: no axis of 1 or 3 channels, neither first nor last")
    for chunk in member.chunks(math.prod(rest)):
        images = np.frombuffer(chunk, np.uint8).reshape(-1, *rest)
        if len(rest) == 2:
            yield images[:, None]
        else:
            yield images.transpose(0, 3, 1, 2) if rest[2] in (1, 3) else images


def _decoded(sources: Iterator[tuple[str, Path | bytes]], size: Size | None, channels: int | None) -> Iterator[Array]:
    """Decodes images on all cores; without `size`, all must be as large as the first."""
    if find_spec("PIL") is None:
        raise MissingExtra("pillow", "images")
    if channels not in (None, 1, 3):
        raise InputError(f"channels={channels}: 3 (colour) or 1 (grey)")
    first = None
    with ThreadPoolExecutor() as pool:
        while some := list(islice(sources, AT_A_TIME)):
            if channels is None:
                channels = len(_decode(some[0], size, None))
            for (where, _), image in zip(
                some, pool.map(partial(_decode, size=size, channels=channels), some), strict=True
            ):
                first = first or image.shape
                if image.shape != first:
                    (_, h, w), (_, height, width) = image.shape, first
                    raise InputError(
                        f"{where} has {h} × {w} pixels, the first image {height} × {width}: give a size to "
                        f"bring all to (--set data.image_size=64, or size=64)"
                    )
                yield image[None]


def _decode(source: tuple[str, Path | bytes], size: Size | None, channels: int | None) -> Array:
    """One image as channel × height × width; its size is checked before it is decoded."""
    from PIL import Image, ImageOps

    where, data = source
    with damage(where, "cannot be read as an image", InputError):
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise InputError(f"{where} has {image.height} × {image.width} pixels; at most {MOST_PIXELS:,} are read")
            if image.mode.startswith(("I", "F")):
                raise InputError(f"{where} has values of more than 8 bits (mode {image.mode!r}): convert it to 8 bits")
            grey = channels == 1 if channels is not None else image.mode in ("1", "L", "LA")
            if image.has_transparency_data:  # transparent parts become white
                plain = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
                plain = plain.convert("L" if grey else "RGB")
            else:
                plain = image.convert("L" if grey else "RGB")
        if size is not None:
            plain = ImageOps.fit(plain, size[::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(plain, np.uint8)
        return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _write(folder: Path, chunks: Iterable[Array], labels: Iterable[Array], where: str) -> dict[str, Any]:
    shape: tuple[int, ...] = (0,)
    n, last = 0, -1
    with (folder / "labels").open("wb", MEGABYTE) as file:
        for some in labels:
            last = max(last, int(some.max()))
            if last >= MOST_CLASSES:
                raise InputError(f"{where}: the label {last:,} is none of at most {MOST_CLASSES:,} classes, from 0 up")
            file.write(some.astype("<i8").tobytes())
    with (folder / "pixels").open("wb", MEGABYTE) as file:
        for chunk in chunks:
            file.write(np.ascontiguousarray(chunk).tobytes())
            n, shape = n + len(chunk), chunk.shape[1:]
    if not n:
        raise InputError(f"{where} holds no images")
    return {"shape": [n, *shape], "n_classes": last + 1}


def _open(entry: Path, names: Sequence[str] | None = None) -> Images:
    """An entry of the cache; without `names`, classes are called by their numbers."""
    said = facts(entry)
    names = tuple(names or map(str, range(said["n_classes"])))
    pixels = open_array(entry / "pixels", "u1", tuple(said["shape"]))
    return Images(pixels, open_array(entry / "labels", "<i8", (said["shape"][0],)), names, entry.name)


def _size(size: int | Size | None) -> Size | None:
    height, width = (size, size) if isinstance(size, int) else size or (1, 1)
    if min(height, width) < 1 or height * width > MOST_PIXELS:
        raise InputError(f"size={size}: a height and a width, at most {MOST_PIXELS:,} pixels")
    return None if size is None else (height, width)


def _same_number(n: int, images: str, n_labels: int, labels: str) -> None:
    if n != n_labels:
        raise InputError(f"{images} has {n:,} images, {labels} has {n_labels:,} labels")
