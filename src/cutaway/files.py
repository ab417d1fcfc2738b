"""Reading files of unknown origin, and writing files that are never half written.

Every room may use it. Reading is strict and limited in size, and a `CheckpointError` names the file. Writing is atomic:
a hidden file beside the place is flushed to the disk, then renamed.
"""

import fcntl
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn
from uuid import uuid4

from cutaway.errors import CheckpointError, CutawayError, MissingExtra

MEGABYTE = 1 << 20
MOST_DIGITS = 300  # of an integer in JSON; a float has 308
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair


def safe_child(folder: Path, name: str) -> Path:
    """The file or folder `name` directly inside `folder`; anything that leads elsewhere is not found.

    Names come from requests and from files of others: `../secret`, `/etc/passwd`, links out of the folder are refused.
    """
    missing = CheckpointError(
        f"{name!r} not found in {folder} (a plain name is needed; a link that leads out of the folder is not followed)"
    )
    if not is_plain(name):
        raise missing
    try:
        root = folder.resolve(strict=True)
        found = (root / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # absent, not encodable, or a loop of links
        raise missing from None
    if not found.is_relative_to(root) or found == root:
        raise missing
    return root / name


def plain_child(folder: Path, name: str) -> Path:
    """The file `name` directly inside `folder`, also where it is a link: a Hugging Face cache links to ../../blobs.

    For names from a file of the same folder, whose author could have linked that file as well; names from requests go
    through `safe_child`.
    """
    if is_plain(name):
        with suppress(OSError, ValueError):  # absent, not encodable, or a loop of links
            (folder / name).stat()
            return folder / name
    raise CheckpointError(f"{name!r} not found in {folder} (a plain name is needed)")


def is_plain(name: object) -> bool:
    """Whether this is the name of something directly inside a folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not any(character in name for character in "/\\\0")


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Adds the file to the message of any Cutaway error that does not name it."""
    try:
        yield
    except CutawayError as error:
        if isinstance(error, MissingExtra) or str(where) in str(error):
            raise
        raise type(error)(f"{where}: {error}") from None


@contextmanager
def damage(where: object, what: str = "is damaged", kind: type[CutawayError] = CheckpointError) -> Iterator[None]:
    """Around a library that reads a file: whatever it raises becomes an error that names the file."""
    try:
        yield
    except CutawayError:
        raise
    except Exception as error:
        raise kind(f"{where} {what}: {str(error) or type(error).__name__}") from None


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    size = regular_size(path)
    if size > limit:
        raise CheckpointError(f"{path} has {size:,} bytes; at most {limit:,} are read")
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None


def read_text(path: Path, limit: int = 64 * MEGABYTE) -> str:
    """The content of a UTF-8 text; a byte-order mark is dropped, and lines end with \\n."""
    try:
        text = read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return text.replace("\r\n", "\n")


def regular_size(path: Path) -> int:
    """The size of a regular file; devices and pipes, which may never end, are refused before they are opened."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(status.st_mode):
        what = ": it is a folder, name what is in it" if path.is_dir() else ""
        raise CheckpointError(f"{path} is not a regular file{what}")
    return status.st_size


def read_json(path: Path, limit: int = 16 * MEGABYTE) -> dict[str, Any]:
    """The JSON object in `path`; duplicate keys, NaN, 1e999, lone surrogates, bad UTF-8, deep nesting are refused."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Strict JSON with an object at the top; `where` names the file in errors."""
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_whole
        )
        if _HALF.search(text):  # perhaps only beside its other half
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise CheckpointError(f"{where} is not valid JSON: {half} is half of a character (a lone surrogate)") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise CheckpointError(f"{where} is JSON that is nested too deeply") from None
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} must hold a JSON object, not a {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses duplicate keys: readers disagree on which of them counts."""
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return result


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large for a number")
    return number


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"{digits[:40]}… is too large for a number")
    return int(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` with its keys in their order; the file is whole or absent."""
    text = json.dumps(dict(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` at the end; an error leaves `path` as it was.

    A crash can leave a hidden `.name.….tmp`, never a half-written `path`; the next writer of `path` removes it.
    """
    temporary = path.parent / f".{path.name}.{uuid4().hex}.tmp"
    if path.exists() and not path.is_file():  # root could replace /dev/null
        raise CheckpointError(f"{path} cannot be written: it is not a regular file; name another")
    try:
        remove_temporary(path)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        with held(temporary):
            mode = temporary.stat().st_mode  # as the umask says; some libraries write private files
            yield temporary
            temporary.chmod(stat.S_IMODE(mode))
            flush(temporary)
            temporary.replace(path)
            flush(path.parent)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_temporary(place: Path) -> None:
    """Removes the hidden files that killed writers of `place` left beside it; errors are ignored."""
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{32}}\.tmp")
    with suppress(OSError):
        for name in os.listdir(place.parent):
            if ours.fullmatch(name):
                remove_left(place.with_name(name))


def remove_left(temporary: Path) -> None:
    """Removes a temporary file or folder, unless its writer is still at work."""
    with suppress(OSError), held(temporary, wait=False):
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink()


@contextmanager
def held(path: Path, wait: bool = True) -> Iterator[None]:
    """Locks a file or folder while the block lasts, so that no other writer takes it for left behind.

    A BlockingIOError if it is locked already and we do not wait. Where a file system has no locks, nothing is ever
    taken for left behind.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not lock_file(descriptor, wait=wait) and not wait:
            raise BlockingIOError(f"{path} is locked")
        yield
    finally:
        os.close(descriptor)


def lock_file(descriptor: int, *, wait: bool = False) -> bool:
    """Locks an open file; False if another process has locked it, or the file system has no locks.

    The system releases the lock when the file is closed, at the latest when the process ends, however it ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def check_writable(folder: Path) -> None:
    """Refuses a folder that cannot be made or written to; it leaves no traces."""
    made: list[Path] = []
    try:
        for place in (*reversed(folder.parents), folder):
            if not place.exists():
                place.mkdir()
                made.append(place)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        for place in reversed(made):
            with suppress(OSError):
                place.rmdir()


def flush(path: Path) -> None:
    """Flush a file or folder to the disk; otherwise a rename may survive a power cut, and the data not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
