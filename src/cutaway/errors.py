"""The errors that Cutaway raises on purpose. Each message names the thing and the fix.

`except CutawayError` catches them all; anything else that escapes is a bug of ours.
"""

import sys


class CutawayError(Exception):
    """The base of every error that Cutaway raises on purpose."""


class ConfigError(CutawayError, ValueError):
    """Numbers that cannot make a model, or a key that nobody knows."""


class InputError(CutawayError, ValueError):
    """An input of the wrong shape, kind, range or length."""


class CheckpointError(CutawayError, ValueError):
    """A file or folder that is damaged, hostile or of another layout."""


class MissingExtra(CutawayError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        command = f"{sys.executable} -m pip install {package}"
        super().__init__(f"the package {package!r} of the extra {extra!r} is not installed: {command}")
