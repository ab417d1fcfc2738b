"""Files that may be packed with gzip or xz, told by their first bytes, and never unpacked to far more than they are."""

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.files import MEGABYTE

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)  # what reading may raise; OSError: also gzip.BadGzipFile
SMALL, TIGHTEST = 16 * MEGABYTE, 200  # bytes, and how many may come of one that is packed


@contextmanager
def open_unpacked(path: Path) -> Iterator[tuple[io.BufferedReader, Callable[[], int]]]:
    """A file for reading, and a function that says how far we are in it as it lies on the disk."""
    with path.open("rb") as raw:
        magic = raw.read(6)
        raw.seek(0)
        if magic.startswith(GZIP):
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield io.BufferedReader(_Measured(path, unpacked, raw), MEGABYTE), raw.tell
        elif magic == XZ:
            with lzma.LZMAFile(raw) as unpacked_xz:
                yield io.BufferedReader(_Measured(path, unpacked_xz, raw), MEGABYTE), raw.tell
        else:
            yield raw, raw.tell


class _Measured(io.RawIOBase):
    """What is unpacked, as long as it is not far more than any text or picture is packed into."""

    def __init__(self, path: Path, unpacked: io.BufferedIOBase, raw: io.BufferedReader) -> None:
        self.path, self.unpacked, self.raw = path, unpacked, raw

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.unpacked.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        n = self.unpacked.readinto1(buffer)  # what is there is given, though the file may be cut short behind it
        if self.unpacked.tell() > max(SMALL, TIGHTEST * self.raw.tell()):
            raise InputError(
                f"{self.path} unpacks to more than {TIGHTEST} times its size, as no text does: unpack it yourself, if "
                f"you know what it is"
            )
        return n
