"""Pairs for the translator `en-de`: read, cleaned of the test, and parted into `train.tsv` and `dev.tsv`.

    python recipes/en-de/prepare.py ../shared/data build/en-de

No sentence of the test may be seen in training, on either side, in either language, however it is spaced, capitalised
or punctuated: such pairs are dropped, and what is left is checked once more before it is written. The pairs of
`dev.tsv` (from Tatoeba alone) are kept apart from `train.tsv` in the same way: they choose, the test only reports.
"""

import gzip
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

TRAIN = ("everyday-en-de/train.tatoeba.en-de.tsv.gz", "bcontrast/train+dev.en-de.tsv.gz")
TEST = "everyday-en-de/test.tatoeba-v2020-07-28.en-de.tsv.gz"
DEV = 2000

Pair = tuple[str, str]


def main() -> None:
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    test = sentences(pairs(data / TEST))
    found = dict.fromkeys(pair for name in TRAIN for pair in pairs(data / name))
    allowed = [pair for pair in found if not touches(pair, test)]
    tatoeba = dict.fromkeys(pairs(data / TRAIN[0]))
    dev = sorted((pair for pair in allowed if pair in tatoeba), key=drawn)[:DEV]
    apart = sentences(dev)
    train = [pair for pair in allowed if not touches(pair, apart)]
    check(train, test | apart)
    check(dev, test)
    write(out / "train.tsv", train)
    write(out / "dev.tsv", dev)
    print(f"{len(train):,} pairs to train on, {len(dev):,} to choose with")
    print(f"dropped: {len(found) - len(allowed):,} that touch the test, {len(allowed) - len(train) - len(dev):,} dev")


def pairs(path: Path) -> Iterator[Pair]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            english, german = (re.sub(r"\s+", " ", side).strip() for side in line.split("\t")[:2])
            if english and german:
                yield english, german


def plain(text: str) -> str:
    """Letters and digits alone: two sentences that differ in anything else are taken for the same."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


def sentences(some: Iterable[Pair]) -> set[str]:
    return {plain(side) for pair in some for side in pair}


def touches(pair: Pair, those: set[str]) -> bool:
    return any(plain(side) in those for side in pair)


def drawn(pair: Pair) -> bytes:
    """An order that looks random and never changes."""
    return hashlib.sha256("\t".join(pair).encode()).digest()


def check(some: Iterable[Pair], those: set[str]) -> None:
    for pair in some:
        if touches(pair, those):
            raise SystemExit(f"{pair} is in the test or in dev.tsv: nothing was written")


def write(path: Path, some: Iterable[Pair]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in some), encoding="utf-8")


if __name__ == "__main__":
    main()
