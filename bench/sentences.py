"""A file of sentences on the CPU by the same weights, in 8 bits: ours with an engine on each core, and CTranslate2.

    .venv/bin/python bench/sentences.py MODEL sentences.txt --to de           # a sentence on each line

Each engine is a process of its own; they take turns. Tokens are counted in: text goes in, text comes out. CTranslate2
runs as it is faster: one translator with two threads, or two with one.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

THEIRS = ("1x2", "2x1")  # translators x threads
WARM = 64  # sentences before the clock starts


def translator(name: str, model: Path, exported: Path, to: str, beam: int, prune: float | None, batch: int) -> Any:
    import cutaway
    from cutaway.decoding.translate_sentences import encode_sources, translate_all
    from cutaway.model.precision import with_precision

    net: Any = cutaway.load(model)
    tokenizer = cutaway.load_tokenizer(model)
    tag = tokenizer.tag_id(to) if to else None
    if name == "cutaway":
        net = with_precision(net, "int8")
        return lambda texts: translate_all(net, tokenizer, texts, tag=tag, beam=beam, prune=prune)
    import ctranslate2

    inter, intra = map(int, name.split()[1].split("x"))
    engine = ctranslate2.Translator(str(exported), compute_type="int8", inter_threads=inter, intra_threads=intra)
    vocabulary: Any = tokenizer.backend

    def theirs(texts: list[str]) -> list[str]:
        sources = encode_sources(net, tokenizer, texts, tag, net.config.end_ids[0])
        words = [[vocabulary.id_to_token(id) for id in source] for source in sources]
        found = engine.translate_batch(words, beam_size=beam, max_decoding_length=256, max_batch_size=batch)
        return [tokenizer.decode([vocabulary.token_to_id(word) for word in one.hypotheses[0]]) for one in found]

    return theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--to", default="")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--prune", type=float)
    parser.add_argument("--batch", type=int, default=32, help="CTranslate2's max_batch_size")
    parser.add_argument("--limit", type=int, default=600, help="only the first so many sentences")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--theirs", nargs="+", choices=THEIRS, default=THEIRS, help="how CTranslate2 uses two cores")
    parser.add_argument("--cpu-time", action="store_true", help="sentences in a second of one core, on a busy machine")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--exported", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        texts = given.sentences.read_text(encoding="utf-8").splitlines()[: given.limit]
        run = translator(given.engine, given.model, given.exported, given.to, given.beam, given.prune, given.batch)
        run(texts[:WARM])
        clock = time.process_time if given.cpu_time else time.perf_counter
        start = clock()
        run(texts)
        print(len(texts) / (clock() - start))
        return
    import cutaway
    from cutaway.checkpoints import export

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = cutaway.load_tokenizer(given.model)
        export(cutaway.load(given.model), Path(folder) / "ct2", to="ctranslate2", tokenizer=tokenizer)
        engines = ["cutaway", *(f"ctranslate2 {way}" for way in given.theirs)]
        rates: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(given.rounds):
            for name in engines:
                command = [sys.executable, *sys.argv, "--engine", name, "--exported", str(Path(folder) / "ct2")]
                rates[name].append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    for name, found in rates.items():
        print(f"{name:16} {min(found):5.0f} … {max(found):.0f} sentences/s, median {median(found):.0f}")
    ours, *theirs = rates.values()
    ratios = [mine / max(other) for mine, *other in zip(ours, *theirs, strict=True)]
    print(f"ours to the faster of theirs, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
