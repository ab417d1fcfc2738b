"""The errors that Cutaway raises on purpose. Each message names the thing and the fix.

`except CutawayError` catches them all; anything else that escapes is a bug of ours.
"""

import sys
import unicodedata

LONGEST = 2000  # characters of a message; what stands in a file of others may be longer


class CutawayError(Exception):
    """The base of every error that Cutaway raises on purpose. Its message can be shown, whatever a file put into it."""

    def __init__(self, message: object = "") -> None:
        text = str(message)
        text = text if text.isprintable() else "".join(map(_shown, text))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}")


def _shown(character: str) -> str:
    """Control characters, marks of direction and halves of surrogate pairs as Python writes them."""
    plain = character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"  # all spaces
    return character if plain else ascii(character)[1:-1]


class ConfigError(CutawayError, ValueError):
    """Numbers that cannot make a model, or a key that nobody knows."""


class InputError(CutawayError, ValueError):
    """An input of the wrong shape, kind, range or length."""


class UnknownArgument(InputError, TypeError):
    """A keyword that a function does not have."""


class CheckpointError(CutawayError, ValueError):
    """A file or folder that is damaged, hostile or of another layout."""


class MissingExtra(CutawayError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        command = f"{sys.executable} -m pip install {package}"
        super().__init__(f"the package {package!r} of the extra {extra!r} is not installed: {command}")
