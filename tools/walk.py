"""How far one has to walk to follow a command: the files and functions of ours that it passes.

    python tools/walk.py translate "I ate an apple." --model en-de --to de
    python tools/walk.py --list train recipes/mnist.toml --set train.steps=1 --out build/walk

A file counts when it is imported. A function counts once, however often it is called; generator expressions do not
count, nor do comprehensions (Python 3.11 calls them as functions, 3.12 does not), nor the bodies of modules and
classes. With `--list` each file is followed by its functions, in the order in which they are first passed. Processes
that the command starts are not followed.
"""

import argparse
import io
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import cutaway

SOURCE = str(Path(cutaway.__file__).parent) + "/"
NEWLOCALS = 0x02  # a flag of code that has names of its own: functions, but not the bodies of modules and classes
EXPRESSIONS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}


def walk(arguments: list[str]) -> dict[str, list[str]]:
    """The functions that `cutaway` with these arguments passes, by file."""
    passed: dict[CodeType, None] = {}

    def see(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            passed.setdefault(frame.f_code)

    sys.argv = ["cutaway", *arguments]
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
            from cutaway.cli import main

            main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"the command failed:\n{out.getvalue()}")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files: dict[str, list[str]] = {"__init__.py": []}
    for code in passed:
        functions = files.setdefault(code.co_filename.removeprefix(SOURCE), [])
        if code.co_flags & NEWLOCALS and code.co_name not in EXPRESSIONS:
            functions.append(code.co_qualname)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the functions, file by file")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of cutaway with its arguments")
    options = parser.parse_args()
    files = walk(options.command)
    if options.list:
        for file, functions in files.items():
            print(file, *functions, sep="\n    ")
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions")


if __name__ == "__main__":
    main()
