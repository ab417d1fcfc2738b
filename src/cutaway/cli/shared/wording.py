"""Words between Python and a terminal: escapes are read, control characters shown, options called by their names."""

import re
import sys
from collections.abc import Collection

ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}


def unescaped(text: str) -> str:
    r"""With the usual escapes read: a shell passes \n on as two characters."""
    return re.sub(r"\\[ntr\\]", lambda found: ESCAPES[found[0]], text)


def shown(text: str) -> str:
    """A text for stdout: a terminal gets no control characters, which it would obey, but their escapes."""
    return visible_controls(text) if sys.stdout.isatty() else text


def visible_controls(text: str) -> str:
    """Control characters but line ends and tabs as their escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def in_options(message: str, options: Collection[str]) -> str:
    """What Python calls top_p=1.5, a command calls --top-p 1.5; other names, such as max_len, are no options."""

    def named(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        if option not in options or not (found[2] or "_" in found[1]):
            return found[0]
        return f"{option} " if found[2] else option

    return re.sub(r"(?<![\w'\"./\-])([a-z][a-z_]*[a-z])\b(=?)", named, message)
