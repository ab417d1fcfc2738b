"""What 8 bits and other engines do to the quality of a trained translator: BLEU of the same test set, beam and weights.

    .venv/bin/python bench/quality.py build/multi30k ../shared/data/multi30k/test_2016_flickr.{en,de}.gz

Ours in fp32 and int8; the same weights exported to CTranslate2, in float32 and int8. CTranslate2 is given our tokens,
and its length penalty means the same as ours; it stops as soon as four hypotheses have ended, as ours does with
`early_stopping=True`. The differences are paired: over sentences drawn with replacement.
"""

import argparse
import gzip
import random
import tempfile
from pathlib import Path
from typing import Any

import sacrebleu

import cutaway
from cutaway.checkpoints import export
from cutaway.decoding.precision import with_precision
from cutaway.decoding.translate import encode_sources, translate_all
from cutaway.tokens import Tokenizer

BEAM = 4
LONGEST = 128  # tokens of a translation


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [line.rstrip("\n") for line in file]


def ctranslate2_translations(
    folder: Path, model: Any, tokenizer: Tokenizer, texts: list[str], compute: str
) -> list[str]:
    import ctranslate2

    engine = ctranslate2.Translator(str(folder), compute_type=compute, intra_threads=2)
    words = tokenizer.backend.id_to_token
    sources = encode_sources(model, tokenizer, texts, None, model.config.end_ids[0])
    found = engine.translate_batch(
        [[words(id) for id in source] for source in sources], beam_size=BEAM, max_decoding_length=LONGEST
    )
    ids: Any = tokenizer.backend.token_to_id
    return [tokenizer.decode([ids(word) for word in one.hypotheses[0]]).strip() for one in found]


def interval(one: list[str], other: list[str], wanted: list[str], resamples: int = 300) -> tuple[float, float]:
    """Of the difference of two BLEUs, 95 %."""
    draw, metric, found = random.Random(0), sacrebleu.BLEU(), []
    statistics = [metric._extract_corpus_statistics(texts, [wanted]) for texts in (one, other)]
    for _ in range(resamples):
        rows = draw.choices(range(len(wanted)), k=len(wanted))
        first, second = (metric._aggregate_and_compute([kept[row] for row in rows]).score for kept in statistics)
        found.append(first - second)
    found.sort()
    return found[int(0.025 * resamples)], found[int(0.975 * resamples)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    texts, wanted = read(given.source)[: given.limit], read(given.reference)[: given.limit]
    model: Any = cutaway.load(given.model)
    tokenizer = cutaway.load_tokenizer(given.model)
    assert tokenizer is not None
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for compute in ("float32", "int8"):
            place = Path(folder) / compute
            export(model, place, to="ctranslate2", tokenizer=tokenizer, quantization=compute)
            found[f"ctranslate2 {compute}"] = ctranslate2_translations(place, model, tokenizer, texts, compute)
    options: dict[str, Any] = {"beam": BEAM, "max_len": LONGEST, "growth": (0.0, float(LONGEST))}
    found["cutaway fp32"] = [text.strip() for text in translate_all(model, tokenizer, texts, **options)]
    soon = translate_all(model, tokenizer, texts, early_stopping=True, **options)
    found["cutaway fp32, early"] = [text.strip() for text in soon]
    model = with_precision(model, "int8")
    found["cutaway int8"] = [text.strip() for text in translate_all(model, tokenizer, texts, **options)]
    ours = found["cutaway fp32"]
    for name, lines in sorted(found.items()):
        bleu = sacrebleu.corpus_bleu(lines, [wanted]).score
        same = sum(a == b for a, b in zip(lines, ours, strict=True)) / len(ours)
        change = ""
        if lines is not ours:
            low, high = interval(lines, ours, wanted)
            change = f", {bleu - sacrebleu.corpus_bleu(ours, [wanted]).score:+.2f} ({low:+.2f} … {high:+.2f})"
        print(f"{name:19} BLEU {bleu:.2f}{change}; {same:.1%} of the lines are cutaway fp32's")


if __name__ == "__main__":
    main()
