"""English sentences from books that could be said today: more for a teacher to translate.

    python recipes/en-de/book_sentences.py ../shared/data build/en-de 400000

Short sentences whose words, all of them, are words of the training pairs; none of the test or of dev.tsv.
"""

import hashlib
import lzma
import re
import sys
from collections import Counter
from pathlib import Path

from prepare import TEST, pairs, plain, sentences

SENTENCE = re.compile(r"(?<=[.!?])[”\"']?\s+[“\"']?")
WORDS = range(3, 19)
OFTEN = 5  # times a word stands in the training pairs


def main() -> None:
    data, out, most = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    train = [line.split("\t")[0] for line in (out / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    dev = [tuple(line.split("\t")) for line in (out / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    counts = Counter(word for text in train for word in plain(text).split())
    known = {word for word, n in counts.items() if n >= OFTEN}
    seen = {plain(text) for text in train} | sentences(pairs(data / TEST)) | sentences(dev)
    found: dict[str, str] = {}
    for file in sorted((data / "gutenberg").glob("books.train.*.txt.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                for text in SENTENCE.split(line.strip()):
                    words = plain(text).split() if usual(text) else []
                    if len(words) in WORDS and known.issuperset(words) and " ".join(words) not in seen:
                        found.setdefault(" ".join(words), text)
        print(file.name, f"{len(found):,}", flush=True)
    chosen = sorted(found.values(), key=lambda text: hashlib.sha256(text.encode()).digest())[:most]
    (out / "books.en").write_text("".join(f"{text}\n" for text in chosen), encoding="utf-8")
    print(f"{len(chosen):,} of {len(found):,} sentences")


def usual(text: str) -> bool:
    """A whole sentence in plain letters: a capital, words, and its end."""
    return bool(re.fullmatch(r"[A-Z][A-Za-z ,;:'’-]{8,120}[.!?]", text))


if __name__ == "__main__":
    main()
