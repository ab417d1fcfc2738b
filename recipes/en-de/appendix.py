"""The appendix of the card of `en-de`: 50 everyday sentences in each direction, with the model's answers.

    python recipes/en-de/appendix.py en-de ../shared/data build/en-de

We wrote the sentences ourselves. None may be among those that were learnt from or measured with, on either side, as
prepare.py compares them: it ends with 1 where one is.
"""

import sys
from pathlib import Path

from prepare import TEST, pairs, plain, sentences

import cutaway

DIRECTIONS = {"en": ("English", "de", "German"), "de": ("German", "en", "English")}


def main() -> None:
    folder, data, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    texts = {source: lines(Path(__file__).parent / f"everyday.{source}") for source in DIRECTIONS}
    seen = sentences(pairs(data / TEST)) | known(out)
    if found := [text for some in texts.values() for text in some if plain(text) in seen]:
        raise SystemExit(f"learnt from or measured with: {found}")
    model, tokenizer = cutaway.load(folder), cutaway.load_tokenizer(folder)
    for source, (name, to, other) in DIRECTIONS.items():
        print(f"### {name} → {other}\n\n| | {name} | the model's answer |\n|---|---|---|")
        answers = cutaway.translate(model, tokenizer, texts[source], to=to, beam=4)
        for n, (text, answer) in enumerate(zip(texts[source], answers, strict=True), 1):
            print(f"| {n} | {text} | {answer} |")
        print()


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def known(out: Path) -> set[str]:
    """All that was prepared to learn from and to choose with: tables of pairs, lists of sentences."""
    files = [out / "train.tsv", out / "dev.tsv", *out.glob("*.tsv"), *out.glob("*.en")]
    return {plain(side) for file in files for line in lines(file) for side in line.split("\t")}


if __name__ == "__main__":
    main()
