"""Word vectors by gensim's skip-gram, from the words and with the settings of `cutaway vectors`, but for the rate.

    .venv/bin/python bench/vectors.py books.train.0.txt.xz build/gensim
    cutaway evaluate build/gensim questions-words.txt.gz                       # and the same for `cutaway vectors`

gensim drops what stands behind the 10,000th word of a text, so longer ones are given to it in parts.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec
from gensim.models.word2vec import MAX_WORDS_IN_BATCH

from cutaway.before.options import SkipGramOptions
from cutaway.before.units import read_ids, units_of
from cutaway.before.vectors.skip_gram import SkipGram


class Texts:
    """Read as often as gensim asks for them."""

    def __init__(self, ids: np.ndarray, end: int, names: list[str]) -> None:
        self.texts, self.names = np.split(ids, np.flatnonzero(ids == end) + 1), names

    def __iter__(self) -> Iterator[list[str]]:
        for text in self.texts:
            for lo in range(0, len(text) - 1, MAX_WORDS_IN_BATCH):  # the last is the end
                yield [self.names[i] for i in text[:-1][lo : lo + MAX_WORDS_IN_BATCH]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", default="form_feed")
    args = parser.parse_args()
    ours, cut = SkipGramOptions(), units_of("words")
    text = read_ids(cut, [args.file], split=args.split)
    begin = time.perf_counter(), time.process_time()
    model = Word2Vec(
        Texts(text.ids, cut.end, cut.names),
        sg=1,
        vector_size=ours.d,
        window=ours.window,
        negative=ours.negatives,
        min_count=5,
        sample=1e-3,
        epochs=ours.epochs,
        seed=1,
        workers=1,
    )
    print(f"{time.perf_counter() - begin[0]:.0f} s, {time.process_time() - begin[1]:.0f} s of one core")
    words = model.wv.index_to_key
    SkipGram(np.arange(len(words)), model.wv.vectors).save(args.out, words)
    print(f"wrote {args.out}: {len(words):,} words")


if __name__ == "__main__":
    main()
