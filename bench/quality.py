"""What 8 bits and other engines do to the quality of a trained translator: BLEU of the same test set, beam and weights.

    .venv/bin/python bench/quality.py build/multi30k ../shared/data/multi30k/test_2016_flickr.{en,de}.gz

Ours in fp32 and int8; the same weights exported to CTranslate2, in float32 and int8. CTranslate2 is given our tokens,
and its length penalty means the same as ours; it stops as soon as four hypotheses have ended, as ours does with
`early_stopping=True`. Differences are those to ours in fp32, on the same draws of sentences.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import cutaway
from cutaway.checkpoints import export
from cutaway.data.text_files import read_lines
from cutaway.decoding.translate_sentences import encode_sources, translate_all
from cutaway.evaluation.bleu import bleu_counts
from cutaway.evaluation.bootstrap import compare
from cutaway.model.precision import with_precision
from cutaway.tokens import Tokenizer

OURS, BEAM, LONGEST = "cutaway fp32", 4, 128  # tokens of a translation


def ctranslate2_translations(
    folder: Path, model: Any, tokenizer: Tokenizer, texts: list[str], compute: str
) -> list[str]:
    import ctranslate2

    engine = ctranslate2.Translator(str(folder), compute_type=compute, intra_threads=2)
    vocabulary: Any = tokenizer.backend
    sources = encode_sources(model, tokenizer, texts, None, model.config.end_ids[0])
    found = engine.translate_batch(
        [[vocabulary.id_to_token(id) for id in source] for source in sources],
        beam_size=BEAM,
        max_decoding_length=LONGEST,
    )
    return [tokenizer.decode([vocabulary.token_to_id(word) for word in one.hypotheses[0]]) for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many sentences")
    given = parser.parse_args()
    texts, wanted = (list(read_lines(path))[: given.limit] for path in (given.source, given.reference))
    model: Any = cutaway.load(given.model)
    tokenizer = cutaway.load_tokenizer(given.model)
    options: dict[str, Any] = {"beam": BEAM, "max_len": LONGEST, "growth": (0.0, float(LONGEST))}
    found = {
        OURS: translate_all(model, tokenizer, texts, **options),
        f"{OURS}, early": translate_all(model, tokenizer, texts, early_stopping=True, **options),
    }
    with tempfile.TemporaryDirectory() as folder:
        for compute in ("float32", "int8"):
            place = Path(folder) / compute
            export(model, place, to="ctranslate2", tokenizer=tokenizer, quantization=compute)
            found[f"ctranslate2 {compute}"] = ctranslate2_translations(place, model, tokenizer, texts, compute)
    found["cutaway int8"] = translate_all(with_precision(model, "int8"), tokenizer, texts, **options)
    lines = {name: [text.strip() for text in its] for name, its in found.items()}
    counts = {name: bleu_counts(its, wanted) for name, its in lines.items()}
    for name in sorted(lines):
        same = sum(a == b for a, b in zip(lines[name], lines[OURS], strict=True)) / len(texts)
        way = compare(counts[name], counts[OURS], seed=0)
        change = f"{way.difference:+.2f} ({way.interval.low:+.2f} … {way.interval.high:+.2f})"
        print(f"{name:19} BLEU {counts[name].score().value:.2f}  {change:26} {same:6.1%} of the lines are the same")


if __name__ == "__main__":
    main()
