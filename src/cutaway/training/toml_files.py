"""TOML of unknown origin: it is read quickly or refused."""

import re
import tomllib
from pathlib import Path
from typing import Any

from cutaway.errors import CheckpointError, ConfigError
from cutaway.files import MEGABYTE, read_bytes

MOST_BYTES = 4 * MEGABYTE
MOST_PARTS = 8  # of a dotted key: the time to read one grows with the square of its parts

# A text without its end is one, too: to look for others in it would take the square of its length.
_TEXT = re.compile(r'"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|"(?:[^"\\\n]|\\.)*+"?|\'[^\'\n]*+\'|#[^\n]*+')
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")

def read_toml(path: Path) -> dict[str, Any]:
    """The content of a file."""
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except CheckpointError as error:
        raise ConfigError(str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return parse_toml(text.replace("\r\n", "\n"), str(path))

def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The content of a text; `where` names it in errors."""
    if key := _LONG_KEY.search(_TEXT.sub("_", text)):
        raise ConfigError(f"{where} is not a recipe: the key {key[0][:40]}… has more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply to be a recipe") from None
    except ValueError as error:  # a TOMLDecodeError is one, and so is a number of too many digits
        raise ConfigError(f"{where} is not valid TOML: {error}") from None
