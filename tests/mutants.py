"""Breaks the code on purpose, one line at a time, and sees that a law notices: `python tests/mutants.py [WORD]`.

A law that no broken line can violate proves nothing. Each mutant is made in a copy of `src/`, and the tests that
should catch it are run there. Exit code 1 when one survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODEL = "src/cutaway/model/"
MUTANTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutant"]


def survives(file: str, old: str, new: str, tests: str) -> bool:
    """Whether the tests still pass with the line broken."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / MODEL / file
        text = path.read_text()
        if text.count(old) < 1:
            raise SystemExit(f"{file} no longer holds {old!r}: bring the mutant up to date")
        path.write_text(text.replace(old, new))
        # without shape checks: the laws themselves have to notice
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src", "CI": "1", "CUTAWAY_TYPECHECK": "0"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
        words, _, only = tests.partition(" -k ")
        chosen = words.split() + (["-k", only] if only else [])
        ended = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise SystemExit(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
        return ended.returncode == 0


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = 0
    chosen = [mutant for mutant in MUTANTS if word in mutant["what"]]
    for mutant in chosen:
        what = mutant.pop("what")
        alive = survives(**mutant)
        survivors += alive
        print("SURVIVES" if alive else "caught  ", what, flush=True)
    print(f"{survivors} of {len(chosen)} mutants survive")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
