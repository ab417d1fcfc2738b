"""Breaks the code on purpose, one line at a time, and sees that a law notices: `python tests/mutants.py [WORD]`.

A law that no broken line can violate proves nothing. Each mutant is made in a copy of `src/`, and the tests that
should catch it are run there. Exit code 1 when one is not caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "src/cutaway/"
LISTS = sorted(Path(__file__).with_suffix("").glob("*.toml"))  # one a room
MUTANTS = [mutant for path in LISTS for mutant in tomllib.loads(path.read_text())["mutant"]]


def fate(file: str, old: str, new: str, tests: str) -> str:
    """What becomes of a broken line: caught by its tests, or not; out of date where it, or its tests, are gone."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / SOURCE / file
        text = path.read_text() if path.exists() else ""
        if old not in text:
            return "OUT OF DATE"
        path.write_text(text.replace(old, new))
        # without shape checks: the laws themselves have to notice
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src", "CI": "1", "CUTAWAY_TYPECHECK": "0"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
        words, _, only = tests.partition(" -k ")
        chosen = words.split() + (["-k", only] if only else [])
        ended = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True)
        return {0: "SURVIVES", 1: "caught"}.get(ended.returncode, "OUT OF DATE")


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [mutant for mutant in MUTANTS if word in mutant["what"]]
    caught = 0
    for mutant in chosen:
        what = mutant.pop("what")
        found = fate(**mutant)
        caught += found == "caught"
        print(f"{found:12s} {what}", flush=True)
    print(f"{caught} of {len(chosen)} mutants are caught")
    return min(len(chosen) - caught, 1)


if __name__ == "__main__":
    sys.exit(main())
