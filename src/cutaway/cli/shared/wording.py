"""Text between Python and the terminal: reads escapes, shows control characters, and names options in errors."""

import re
import sys
from collections.abc import Collection

ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}


def unescaped(text: str) -> str:
    r"""With escapes such as \n replaced, which a shell passes as two characters."""
    return re.sub(r"\\[ntr\\]", lambda found: ESCAPES[found[0]], text)


def shown(text: str) -> str:
    """A text for stdout: on a terminal control characters are shown as escapes."""
    return visible_controls(text) if sys.stdout.isatty() else text


def visible_controls(text: str) -> str:
    """Shows control characters, except for line ends and tabs, as escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def in_options(message: str, options: Collection[str]) -> str:
    """Replaces Python's top_p=1.5 by --top-p 1.5 in a message; other names, such as max_len, are kept."""

    def named(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        if option not in options or not (found[2] or "_" in found[1]):
            return found[0]
        return f"{option} " if found[2] else option

    return re.sub(r"(?<![\w'\"./\-])([a-z][a-z_]*[a-z])\b(=?)", named, message)
