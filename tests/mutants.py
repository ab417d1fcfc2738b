"""Breaks the code on purpose, a line at a time, and sees that a law notices: `python tests/mutants.py [-j N] [WORD …]`.

A law that no broken line can violate proves nothing. Each mutant is made in a copy of `src/`, and the tests that
should catch it are run there. A WORD is the name of a room, or a piece of what a mutant says; `-j` tries N at once.
Exit code 1 when one is not caught.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "src/cutaway/"
LISTS = sorted(Path(__file__).with_suffix("").glob("*.toml"))  # one a room
ROOMS = {path.stem: tomllib.loads(path.read_text())["mutant"] for path in LISTS}
MUTANTS = [mutant for mutants in ROOMS.values() for mutant in mutants]

# Imported once, before the first fork: most of what the tests of one mutant would take. Nothing of cutaway.
SLOW_IMPORTS = ("torch", "torch._dynamo", "torch.func", "numpy", "pytest", "hypothesis", "safetensors.torch",
                "tokenizers", "typer", "typer.testing", "rich.console", "scipy.stats", "transformers")  # fmt: skip
LIMIT = 600  # seconds for the tests of one mutant: a broken line may loop for ever
ENDS = {0: "SURVIVES", 1: "caught"}


def main() -> int:
    reads = argparse.ArgumentParser(description=__doc__)
    reads.add_argument("word", nargs="*", help="a room, or a piece of what the mutants say; without one, all")
    reads.add_argument("-j", type=int, default=1, metavar="N", help="how many to try at once")
    asked = reads.parse_args()
    chosen = [
        mutant
        for room, mutants in ROOMS.items()
        for mutant in mutants
        if not asked.word or any(word == room or word in mutant["what"] for word in asked.word)
    ]
    caught = 0
    for mutant, fate in fates(chosen, at_once=asked.j):
        caught += fate == "caught"
        print(f"{fate:12s} {mutant['what']}", flush=True)
    print(f"{caught} of {len(chosen)} mutants are caught")
    return min(len(chosen) - caught, 1)


def fates(mutants: list[dict[str, str]], at_once: int) -> Iterable[tuple[dict[str, str], str]]:
    """What becomes of each: caught by its tests, or not; out of date where the line, or its tests, are gone."""
    for module in SLOW_IMPORTS:
        with suppress(ImportError):
            importlib.import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        free = [shutil.copytree(ROOT / "src", Path(folder) / str(number) / "src") for number in range(at_once)]
        running: dict[int, tuple[dict[str, str], Path]] = {}
        waiting = iter(mutants)
        while True:
            while free and (mutant := next(waiting, None)):
                if not broken(free[-1], mutant):
                    yield mutant, "OUT OF DATE"
                    continue
                source = free.pop()
                running[start(source, mutant["tests"], at_once)] = mutant, source
            if not running:
                return
            process, status = os.wait()
            mutant, source = running.pop(process)
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # what its tests had started
            write(source / "cutaway" / mutant["file"], (ROOT / SOURCE / mutant["file"]).read_bytes())
            free.append(source)
            yield mutant, "HANGS" if os.WIFSIGNALED(status) else ENDS.get(os.WEXITSTATUS(status), "OUT OF DATE")


def broken(source: Path, mutant: dict[str, str]) -> bool:
    """Whether there was a line to break in this copy."""
    path = source / "cutaway" / mutant["file"]
    text = path.read_text() if path.exists() else ""
    if mutant["old"] not in text:
        return False
    write(path, text.replace(mutant["old"], mutant["new"]).encode())
    return True


def write(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it tells texts of one size and second not apart


def start(source: Path, tests: str, at_once: int) -> int:
    """A process of its own that runs these tests on this copy: it exits as pytest does."""
    process = os.fork()
    if process:
        return process
    os.setsid()
    signal.alarm(LIMIT)
    os.chdir(ROOT)
    # without shape checks: the laws themselves have to notice
    os.environ |= {"PYTHONPATH": str(source), "CI": "1", "CUTAWAY_TYPECHECK": "0"}
    if at_once > 1:
        importlib.import_module("torch").set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(source))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    words, _, only = tests.partition(" -k ")
    options = ["-q", "-x", "--no-header", "-m", "", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]
    ended = importlib.import_module("pytest").main([*options, *words.split(), *(["-k", only] if only else [])])
    os._exit(ended)


if __name__ == "__main__":
    sys.exit(main())
