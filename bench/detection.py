"""How often `detect` knows the language of an everyday sentence: python bench/detection.py en=FILE:COLUMN …

The files are tables of sentences (.tsv.gz) with columns from 0; of each, 3,000 sentences are drawn.
"""

import gzip
import random
import sys

from cutaway.serving.detection import detect

SAMPLE, BINS = 3000, 10


def main() -> None:
    sentences = {}
    for argument in sys.argv[1:]:
        language, _, place = argument.partition("=")
        file, _, column = place.rpartition(":")
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        sentences[language] = random.Random(0).sample([row[int(column)] for row in rows[1:]], SAMPLE)
    print("| letters | sentences | " + " | ".join(sentences) + " | all | confidence off by |")
    print("|---|---|" + "---|" * (len(sentences) + 2))
    for least, below in ((1, 20), (20, 40), (40, 10**6), (1, 10**6)):
        right: dict[str, list[bool]] = {language: [] for language in sentences}
        bins = [[0.0, 0.0] for _ in range(BINS)]
        for language, its in sentences.items():
            for sentence in its:
                if least <= len(sentence) < below:
                    best = detect(sentence, list(sentences))[0]
                    right[language].append(best.language == language)
                    of_bin = bins[min(BINS - 1, int(BINS * best.confidence))]
                    of_bin[0], of_bin[1] = of_bin[0] + best.confidence, of_bin[1] + (best.language == language)
        every = [one for its in right.values() for one in its]
        shares = [f"{100 * sum(its) / len(its):.1f} %" for its in (*right.values(), every)]
        off = sum(abs(confidence - hits) for confidence, hits in bins) / len(every)
        print(f"| {least} … {below - 1} | {len(every):,} | " + " | ".join(shares) + f" | {100 * off:.1f} % |")


if __name__ == "__main__":
    main()
