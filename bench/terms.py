"""What terms do to the translations of a trained translator: where they stand, and what stands beside them.

    .venv/bin/python bench/terms.py build/multi30k ../shared/data/multi30k/test_2016_flickr.{en,de}.gz

For each term, the first sentences that have its word once and whose reference has the usual translation once. Counted
are texts that have the term, that have it behind the end of the sentence, and that have the usual word as well. chrF
compares with the reference in which the term stands for the usual word: a wrecked sentence is further from it.
"""

import argparse
import re
import time
from pathlib import Path
from typing import Any

import cutaway
from cutaway.data.text_files import read_lines
from cutaway.decoding.rules.terms import contains
from cutaway.evaluation.bleu import chrf

TERMS = {  # word → term, what it is usually called
    "dog": ("Vierbeiner", "Hund"),
    "street": ("Allee", "Straße"),
    "man": ("Herr", "Mann"),
    "woman": ("Dame", "Frau"),
    "shirt": ("Leibchen", "Hemd"),
    "bike": ("Drahtesel", "Fahrrad"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--limit", type=int, default=25, help="sentences of each term")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--show", action="store_true", help="print every translation")
    given = parser.parse_args()
    model: Any = cutaway.load(given.model)
    tokenizer = cutaway.load_tokenizer(given.model)
    pairs = list(zip(read_lines(given.source), read_lines(given.reference), strict=True))
    print(
        "| term | sentences | has it | behind the end | the usual word too | chrF | s |\n|---|---|---|---|---|---|---|"
    )
    every: list[tuple[str, str]] = []
    for word, (term, usual) in TERMS.items():
        some = [(text, said) for text, said in pairs if _once(text, word) and _once(said, usual)][: given.limit]
        begun = time.perf_counter()
        found = cutaway.translate(model, tokenizer, [text for text, _ in some], terms={word: term}, beam=given.beam)
        took = time.perf_counter() - begun
        has = sum(contains(text, term) for text in found)
        behind = sum(re.search(rf"[.!?].*\b{term}\b", text) is not None for text in found)
        too = sum(re.search(rf"\b{usual}", text) is not None for text in found)
        wanted = [re.sub(rf"\b{usual}\b", term, said) for _, said in some]
        score = chrf(found, wanted)
        every += zip(found, wanted, strict=True)
        print(f"| {word} → {term} | {len(some)} | {has} | {behind} | {too} | {score.value:.1f} | {took:.1f} |")
        if given.show:
            print(*found, sep="\n")
    print(f"| all | {len(every)} | | | | {chrf(*zip(*every, strict=True)).value:.1f} | |")


def _once(text: str, word: str) -> bool:
    return len(re.findall(rf"\b{word}\b", text)) == 1


if __name__ == "__main__":
    main()
