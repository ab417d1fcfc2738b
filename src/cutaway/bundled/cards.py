"""The lines at the top of a model's card, README.md, that a list of models shows.

---
about: "Translates everyday sentences between English and German."
license: "CC-BY-SA-4.0"
score: "what was measured, and on which test"
---

They are YAML, which Hugging Face's Hub reads too (hence `license`); here texts alone are read, one on a line.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from cutaway.files import MEGABYTE, read_bytes

FENCE = "---"


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
        value = _text(value.strip())
        if colon and value and key == key.strip() and not key.startswith("#"):
            found[key] = value
    return found


def card_of(folder: Path) -> dict[str, str]:
    """What the card in a model's folder says at its top; nothing where there is none."""
    file = folder / "README.md"
    return read_front_matter(read_bytes(file, MEGABYTE).decode("utf-8", "replace")) if file.is_file() else {}


def _text(value: str) -> str:
    """A YAML scalar: JSON's strings are among them, so are bare words, and 'single quotes'."""
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return ""
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return "" if value.startswith(("[", "{", "|", ">", "&", "*", "!")) else value
