"""Pictures of 8, 40 and 512 tokens: how many bytes a page and a drawing have, and how long they take.

    .venv/bin/python bench/pictures.py                 # --out FOLDER keeps them, to look at

Each kind with random numbers, which compress worse than a model's: 12 × 12 heads, 12 layers. The limit is 2 s, 5 MB.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.picture_examples import KINDS, prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8, 40, 512])
    given = parser.parse_args()
    names = ("make s", "html s", "html MB", "svg s", "svg MB", "text s")
    print(f"{'kind':14s} {'tokens':>6s} " + " ".join(f"{name:>7s}" for name in names))
    for kind in KINDS:
        for n in given.tokens:
            times, sizes = [], []
            make = prepared(kind, n)
            start = time.perf_counter()
            picture = make()
            times.append(time.perf_counter() - start)
            for write in (picture.html, picture.svg, picture.text):
                start = time.perf_counter()
                sizes.append(len(write().encode()) / 1e6)
                times.append(time.perf_counter() - start)
            row = (times[0], times[1], sizes[0], times[2], sizes[1], times[3])
            print(f"{kind:14s} {n:6d} " + " ".join(f"{value:7.2f}" for value in row), flush=True)
            if given.out:
                given.out.mkdir(parents=True, exist_ok=True)
                for suffix in (".html", ".svg", ".txt"):
                    picture.save(given.out / f"{kind.replace(' ', '-')}-{n}{suffix}")


if __name__ == "__main__":
    main()
