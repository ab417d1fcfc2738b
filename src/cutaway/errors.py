"""The errors that Cutaway raises on purpose. Each message names what is wrong and how to fix it.

`except CutawayError` catches all of them; any other exception is a bug in Cutaway.
"""

import sys
import unicodedata

LONGEST = 2000  # characters of a message, which may quote a file of any length


class CutawayError(Exception):
    """The base class. Its message can be printed safely, even if it quotes a file with control characters."""

    def __init__(self, message: object = "") -> None:
        text = str(message)
        text = text if text.isprintable() else "".join(map(_escaped, text))
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}")


def _escaped(character: str) -> str:
    """A control character, direction mark or half of a surrogate pair, escaped as in Python."""
    plain = character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"  # all spaces
    return character if plain else ascii(character)[1:-1]


class ConfigError(CutawayError, ValueError):
    """Numbers that cannot define a model, or an unknown key or name."""


class InputError(CutawayError, ValueError):
    """An input of the wrong shape, type, range or length."""


class UnknownArgument(InputError, TypeError):
    """A keyword that a function does not have."""


class CheckpointError(CutawayError, ValueError):
    """A file or folder that is damaged, malicious or in another format."""


class MissingExtra(CutawayError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        command = f"{sys.executable} -m pip install {package}"
        super().__init__(f"the package {package!r} of the extra {extra!r} is not installed: {command}")
