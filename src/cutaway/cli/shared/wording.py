"""Text between Python and the terminal: reads escapes, shows control characters, and names options in errors."""

import re
from collections.abc import Collection

from cutaway.pictures.terminal_text import shown, visible_controls

__all__ = ["in_options", "shown", "unescaped", "visible_controls"]

ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", "\\\\": "\\"}


def unescaped(text: str) -> str:
    r"""With escapes such as \n replaced, which a shell passes as two characters."""
    return re.sub(r"\\[ntr\\]", lambda found: ESCAPES[found[0]], text)


def in_options(message: str, options: Collection[str]) -> str:
    """Replaces Python's top_p=1.5 by --top-p 1.5 in a message; other names, such as max_len, are kept."""

    def named(found: re.Match[str]) -> str:
        option = f"--{found[1].replace('_', '-')}"
        if option not in options or not (found[2] or "_" in found[1]):
            return found[0]
        return f"{option} " if found[2] else option

    return re.sub(r"(?<![\w'\"./\-])([a-z][a-z_]*[a-z])\b(=?)", named, message)
