"""An n-gram model of books, from files to tables: how long it trains, in how much memory, how fast and well it scores.

    .venv/bin/python bench/ngram.py                              # a 5-gram of tokens on all shards
    .venv/bin/python bench/ngram.py --shards 1 --unit words      # or characters, bytes; a first look
    .venv/bin/python bench/ngram.py --folder /big/disk/model     # another place for the counts, which are kept there

The text is that of books.train.*.xz in a folder, tested on its books.valid.txt.gz; tokens are those of the model
`books`. It is read, cut, counted and smoothed as by `cutaway ngram`; training and scoring have a process of their own
each, so that their memory is their own. Aims, on two cores, for a 5-gram on six shards: < 10 minutes, < 6 GB,
≥ 200,000 tokens/s.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DEFAULT_TEXT = Path(__file__).parents[2] / "shared" / "data" / "gutenberg"


def train(folder: Path, files: list[Path], unit: str, order: int, smoothing: str) -> dict[str, Any]:
    from cutaway.before.ngrams.counts import count_ngrams
    from cutaway.before.ngrams.ngram_folder import write_ngram_folder
    from cutaway.before.ngrams.smoothing import smoothed
    from cutaway.before.units import read_ids, units_of

    imports, start = peak(), time.perf_counter()
    cut = units_of(unit)
    text = read_ids(cut, files, split="form_feed")
    read = time.perf_counter()
    counts = count_ngrams(text.ids, len(cut.names), order, end=cut.end, folder=folder)
    counted = time.perf_counter()
    model = smoothed(counts, smoothing)
    write_ngram_folder(model, cut, folder, there=True)
    done = time.perf_counter()
    seconds = {"reading": read - start, "counting": counted - read, "smoothing": done - counted, "all": done - start}
    sizes = [len(level.keys) for level in counts.levels]
    kinds = len(cut.names)
    return {"seconds": seconds, "imports": imports, "peak": peak(), "tokens": len(text.ids), "kinds": kinds,
            "ngrams": sizes, "about": str(model)}  # fmt: skip


def score(folder: Path, file: Path) -> dict[str, Any]:
    from cutaway.before.ngrams.ngram_folder import read_ngram_folder
    from cutaway.before.units import read_ids

    model, cut = read_ngram_folder(folder)
    text = read_ids(cut, [file], split="form_feed", new=False)
    rates = []
    for _ in range(3):  # the first time the tables come from the disk
        start = time.perf_counter()
        scores = model.log_probabilities(text.ids)
        rates.append(len(text.ids) / (time.perf_counter() - start))
    bits = -scores.sum() / math.log(2)
    return {"rates": rates, "tokens": len(text.ids), "bits": bits / len(text.ids), "unknown": text.unknown(cut),
            "per byte": bits / text.n_bytes if text.whole else None}  # fmt: skip


def peak() -> int:
    """The most megabytes that were resident, pages of mapped files included."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 // 1_000_000 for line in status if line.startswith("VmHWM"))


def in_a_process(step: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    given = {name: value for name, value in vars(chosen).items() if name not in ("step", "folder")}
    options = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), *options]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return answer


def report(trained: dict[str, Any], scored: dict[str, Any], unit: str) -> None:
    seconds = trained["seconds"]
    print(f"{trained['tokens']:,} {unit} of {trained['kinds']:,} kinds")
    print(f"{trained['about']}; n-grams: {', '.join(f'{n:,}' for n in trained['ngrams'])}")
    print(f"training  {seconds['all']:10,.0f} s   reading and cutting {seconds['reading']:,.0f}, "
          f"counting {seconds['counting']:,.0f}, smoothing {seconds['smoothing']:,.0f}")  # fmt: skip
    print(f"          {trained['peak']:10,} MB resident at most, of which {trained['imports']:,} for imports")
    print(f"scoring   {max(scored['rates']):10,.0f} {unit}/s; the first time {scored['rates'][0]:,.0f}")
    # Words leave punctuation out, and spelling unknown ones is not paid for: bits per byte would flatter.
    rest = (
        f"{scored['unknown']:.1%} unknown" if scored["per byte"] is None else f"{scored['per byte']:.3f} bits per byte"
    )
    print(f"          {scored['tokens']:10,} {unit} of other books: {scored['bits']:.3f} bits each, {rest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--unit", default="books", help="words, characters, bytes, or a model whose tokenizer cuts")
    parser.add_argument("--smoothing", choices=["kneser-ney", "back-off"], default="kneser-ney")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT)
    parser.add_argument("--folder", type=Path, help="where the model lies; else it is dropped at the end")
    parser.add_argument("--step", choices=["train", "score"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step == "train":
        files = sorted(chosen.text.glob("books.train.*.xz"))[: chosen.shards]
        return print(json.dumps(train(chosen.folder, files, chosen.unit, chosen.order, chosen.smoothing)))
    if chosen.step == "score":
        return print(json.dumps(score(chosen.folder, chosen.text / "books.valid.txt.gz")))
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        trained, scored = (in_a_process(step, folder, chosen) for step in ("train", "score"))
        report(trained, scored, "tokens" if chosen.unit == "books" else chosen.unit)


if __name__ == "__main__":
    main()
