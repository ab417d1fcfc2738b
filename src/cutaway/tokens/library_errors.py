"""Turns every failure of the Rust library, on a damaged file or an odd text, into one of our errors.

A panic reaches Python as `PanicException`, which derives from `BaseException` so that `except Exception` misses it. An
allocation that fails in Rust ends the process, which nothing can catch, so the one field that can ask for it is checked
before.
"""

import base64
import binascii
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from cutaway.errors import CheckpointError, CutawayError, InputError


@contextmanager
def damaged_tokenizer(where: str) -> Iterator[None]:
    """Any failure inside means that the tokenizer in `where` is damaged."""
    try:
        with _without_panic_notes():
            yield
    except CutawayError:
        raise
    except Exception as error:
        raise CheckpointError(f"{where} is not a valid tokenizer: {error}") from None
    except BaseException as panic:
        if not _is_panic(panic):
            raise  # Ctrl-C and the like
        raise CheckpointError(f"{where} is not a valid tokenizer: {panic}") from None


@contextmanager
def input_errors(file: Path | None = None) -> Iterator[None]:
    """A failure inside is the fault of the input; a panic is the fault of the tokenizer, which came from this file."""
    which = f"the tokenizer in {file}" if file else "the tokenizer"
    try:
        yield
    except TypeError:
        raise InputError("only valid Unicode text can be encoded: no bytes, no lone surrogates") from None
    except Exception as error:
        raise InputError(f"{which} cannot take this input: {error}") from None
    except BaseException as panic:
        if not _is_panic(panic):
            raise
        raise CheckpointError(f"{which} is damaged: {panic}") from None


@contextmanager
def _without_panic_notes() -> Iterator[None]:
    """Suppresses the note that the library writes to stderr on a panic, since our error says the same.

    Other output to stderr is delayed a little.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # closed
        yield
        return
    with TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            notes.seek(0)
            said = notes.read()
            if said := said.partition(b"\nthread ")[0] if failed and b" panicked at " in said else said:
                os.write(2, said)


def _is_panic(error: BaseException) -> bool:
    """PyO3 does not export the class, so it is recognised by name."""
    return type(error).__name__ == "PanicException"


def refuse_broken_charsmap(normalizer: Any, file: Path) -> None:
    """Checks SentencePiece's character map, which begins with a size that the library allocates."""
    todo = [normalizer]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if "precompiled_charsmap" in node:
                _check_charsmap(node["precompiled_charsmap"], file)
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)


def _check_charsmap(text: Any, file: Path) -> None:
    try:
        table = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        table = b""
    if len(table) < 4 or int.from_bytes(table[:4], "little") > len(table) - 4:
        raise CheckpointError(f"{file} has a precompiled_charsmap that is truncated or states a wrong size")
