"""What strangers do to files, models and writers, tried by the thousand; the same seed tries the same things.

    python bench/strangers.py files --seed 1      changed files for every reader
    python bench/strangers.py flips --seed 1      flipped bits in caches and checkpoints
    python bench/strangers.py models              broken models for `verify`, and sound ones
    python bench/strangers.py kills --seed 1      kills in the middle of every writer

Each part is `campaign/PART.py` with `run(seed, …) -> int`, the number of failures; its other parameters are options
here. The exit code is 1 where anything failed.
"""

import argparse
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

PARTS = ("files", "flips", "models", "kills")


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    known, _ = parser.parse_known_args([word for word in sys.argv[1:2] if word in PARTS] or sys.argv[1:])
    run = import_module(f"campaign.{known.part}").run
    for name, parameter in signature(run).parameters.items():
        default = 0 if name == "seed" else parameter.default
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    del options["part"]
    return 1 if run(**options) else 0


if __name__ == "__main__":
    sys.exit(main())
