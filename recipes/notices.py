"""Which lines of the books speak of those who digitised them, or of a copyright: what a shipped model learnt from.

    python recipes/notices.py ../shared/data/gutenberg/books.train.*.txt.xz ../shared/data/gutenberg/books.valid.txt.gz

For each file how many lines of each kind it has; then every line on a copyright with a year from 1930 on, and its book.
"""

import gzip
import lzma
import re
import sys
from pathlib import Path

LATE = 1930  # what was published before is in the public domain in the US in 2026
KINDS = {
    "digitisers": re.compile(
        r"^(?:e-text )?(?:produced|prepared|transcribed|scanned|proofread|digiti[sz]ed) by ", re.I
    ),
    "gutenberg": re.compile(r"project gutenberg|pgdp|gutenberg\.(?:org|net)", re.I),
    "copyright": re.compile(r"copyright|all rights reserved", re.I),
}
YEAR = re.compile(r"\b(1[89]\d\d|20[0-2]\d)\b")


def main() -> None:
    late = []
    for name in sys.argv[1:]:
        path = Path(name)
        opener = lzma.open if path.suffix == ".xz" else gzip.open
        with opener(path, "rt", encoding="utf-8") as file:
            books = file.read().split("\f")
        counts = dict.fromkeys(KINDS, 0)
        for number, book in enumerate(books):
            for line in book.splitlines():
                for kind, looks in KINDS.items():
                    if looks.search(line):
                        counts[kind] += 1
                        years = [int(year) for year in YEAR.findall(line)]
                        if kind == "copyright" and any(year >= LATE for year in years):
                            late.append((path.name, number, line.strip()))
        print(path.name, f"{len(books)} books,", ", ".join(f"{kind} {count} lines" for kind, count in counts.items()))
    for file, number, line in late:
        print(f"{file}, book {number}: {line[:160]}")


if __name__ == "__main__":
    main()
