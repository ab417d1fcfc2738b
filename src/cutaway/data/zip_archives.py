"""Zip archives of unknown origin, read member by member; whatever is wrong with one is an error that names it."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from cutaway.data.text_files import file_size
from cutaway.errors import InputError
from cutaway.files import damage

# The others (bzip2, LZMA) unpack a few bytes to megabytes at once, and nobody packs arrays or tables with them.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_zip(path: Path) -> bool:
    """Judged by its first bytes; whether it is sound shows when it is opened."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in (b"PK\3\4", b"PK\5\6")  # the latter where it is empty


@contextmanager
def open_zip(path: Path, what: str = "zip") -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """An archive with its members by name, folders left out; of two of one name the last counts, as for everybody."""
    file_size(path)
    with damage(path, f"is not an {what} archive, or a damaged one", InputError):
        archive = zipfile.ZipFile(path)
    with archive:
        yield archive, {info.filename: info for info in archive.infolist() if not info.filename.endswith("/")}


@contextmanager
def open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> Iterator[BufferedIOBase]:
    """One member as a file; read it with `read_member`."""
    if info.compress_type not in METHODS:
        raise InputError(f"{where} is packed by method {info.compress_type}; only 0 (stored) and 8 (deflated) are read")
    with damage(where, "cannot be read", InputError):
        file = archive.open(info)
    with file:
        yield cast(zipfile.ZipExtFile, file)


def read_member(file: BufferedIOBase, n: int, where: str) -> bytes:
    """The next n bytes, or the last; a damaged member shows here."""
    with damage(where, "cannot be read", InputError):
        return file.read(n)
