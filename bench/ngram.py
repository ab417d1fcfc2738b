"""An n-gram model of books: how long it trains, how much memory that takes, how fast it scores, and how well.

    .venv/bin/python bench/ngram.py                              # a 5-gram of tokens on all shards
    .venv/bin/python bench/ngram.py --shards 1 --unit words      # or bytes; a first look
    .venv/bin/python bench/ngram.py --folder /big/disk           # another place for ids and counts; ids are kept there

The text is that of books.train.*.xz in a folder, tested on its books.valid.txt.gz; tokens are those of the model
`books`. Reading and tokenising are timed by themselves. Training and scoring run in a process of their own, so that
their memory is their own. Aims, on two cores, for a 5-gram on six shards: < 10 minutes, < 6 GB, ≥ 200,000 tokens/s.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

DEFAULT_TEXT = Path(__file__).parents[2] / "shared" / "data" / "gutenberg"
UNK, END = 0, 1


def ids_of(unit: str) -> tuple[Callable[[Path], Iterator[np.ndarray]], Callable[[], tuple[int, int]]]:
    """What reads a file, and what then tells the size of the vocabulary and the id of the end."""
    from cutaway import load_tokenizer
    from cutaway.data.corpus import encoded
    from cutaway.data.text import read_documents

    if unit == "tokens":
        tokenizer = load_tokenizer("books")
        end = tokenizer.eos_id

        def cut(text: str) -> np.ndarray:
            return np.array(next(encoded(tokenizer, [text])), np.uint32)

        def told() -> tuple[int, int]:
            return tokenizer.vocab_size, end
    elif unit == "words":
        index: defaultdict[str, int] = defaultdict()
        index.default_factory, end = index.__len__, END
        index["<unk>"], index["<eos>"] = UNK, END

        def cut(text: str) -> np.ndarray:
            words = text.split()
            return np.fromiter(map(index.__getitem__, words), np.uint32, len(words))

        def told() -> tuple[int, int]:
            return len(index), END
    else:
        end = 256

        def cut(text: str) -> np.ndarray:
            return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)

        def told() -> tuple[int, int]:
            return 257, end

    def read(path: Path) -> Iterator[np.ndarray]:
        for piece in read_documents([path], "form_feed"):
            yield cut(piece.text)
            if piece.ends:
                yield np.array([end], np.uint32)

    return read, told


def make(text: Path, folder: Path, shards: int, unit: str) -> None:
    """Write the ids of the text and of what it is tested on."""
    from cutaway.data.text import read_documents

    start = time.perf_counter()
    read, told = ids_of(unit)
    files = sorted(text.glob("books.train.*.xz"))[:shards]
    valid = text / "books.valid.txt.gz"
    with (folder / "train.ids").open("wb") as file:
        for path in files:
            for ids in read(path):
                ids.tofile(file)
    vocab_size, end = told()
    tested = np.concatenate(list(read(valid)))
    tested[tested >= vocab_size] = UNK  # words that the training text does not have
    tested.tofile(folder / "valid.ids")
    n_bytes = sum(len(piece.text.encode()) for piece in read_documents([valid], "form_feed"))
    about = {"vocab_size": vocab_size, "end": end, "valid bytes": n_bytes, "seconds": time.perf_counter() - start}
    (folder / "ids.json").write_text(json.dumps(about))


def train(folder: Path, order: int, smoothing: str) -> None:
    from cutaway.baselines.counts import count_ngrams
    from cutaway.baselines.ngram_smoothing import smoothed

    about = json.loads((folder / "ids.json").read_text())
    ids = np.memmap(folder / "train.ids", np.uint32, "r")
    before, start = peak(), time.perf_counter()
    counts = count_ngrams(ids, about["vocab_size"], order, end=about["end"], folder=folder / "model")
    counted = time.perf_counter()
    model = smoothed(counts, smoothing)
    done = time.perf_counter()
    measured = {"imports": before, "peak": peak(), "counting": counted - start, "smoothing": done - counted}
    sizes = [len(level.keys) for level in counts.levels]
    print(json.dumps(measured | {"tokens": len(ids), "ngrams": sizes, "about": str(model)}))


def score(folder: Path) -> None:
    from cutaway.baselines.ngram import NGramModel

    about = json.loads((folder / "ids.json").read_text())
    model, ids = NGramModel.open(folder / "model"), np.fromfile(folder / "valid.ids", np.uint32)
    times = []
    for _ in range(3):  # the first time the tables come from the disk
        start = time.perf_counter()
        scores = model.log_probabilities(ids)
        times.append(len(ids) / (time.perf_counter() - start))
    bits = -scores.sum() / math.log(2)
    unknown = float((ids == UNK).mean())
    measured = {"rates": times, "tokens": len(ids), "bits": bits / len(ids), "per byte": bits / about["valid bytes"]}
    print(json.dumps(measured | {"peak": peak(), "unknown": unknown}))


def peak() -> int:
    """The most megabytes that were resident, pages of mapped files included."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 // 1_000_000 for line in status if line.startswith("VmHWM"))


def in_a_process(*words: object) -> str:
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def report(folder: Path, options: list[object], unit: str) -> None:
    if not (folder / "ids.json").exists():
        in_a_process("--step", "make", *options)
    about = json.loads((folder / "ids.json").read_text())
    trained, scored = (json.loads(in_a_process("--step", step, *options)) for step in ("train", "score"))
    seconds = trained["counting"] + trained["smoothing"]
    print(f"{trained['tokens']:,} {unit} of {about['vocab_size']:,} kinds; read and cut in {about['seconds']:,.0f} s")
    print(f"{trained['about']}; n-grams: {', '.join(f'{n:,}' for n in trained['ngrams'])}")
    print(f"training  {seconds:10,.0f} s   counting {trained['counting']:,.0f}, smoothing {trained['smoothing']:,.0f}")
    print(f"          {trained['peak']:10,} MB resident at most, of which {trained['imports']:,} for imports")
    print(f"scoring   {max(scored['rates']):10,.0f} {unit}/s; the first time {scored['rates'][0]:,.0f}")
    print(f"          {scored['tokens']:10,} {unit} of other books: {scored['bits']:.3f} bits each", end="")
    if unit == "words":
        print(f", {scored['unknown']:.1%} unknown")  # spelling those is not paid for, so bits per byte would flatter
    else:
        print(f", {scored['per byte']:.3f} bits per byte")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--unit", choices=["tokens", "words", "bytes"], default="tokens")
    parser.add_argument("--smoothing", choices=["kneser-ney", "back-off"], default="kneser-ney")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT)
    parser.add_argument("--folder", type=Path, help="where ids and counts lie; ids of an earlier run there are used")
    parser.add_argument("--step", choices=["make", "train", "score"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step == "make":
        return make(chosen.text, chosen.folder, chosen.shards, chosen.unit)
    if chosen.step == "train":
        return train(chosen.folder, chosen.order, chosen.smoothing)
    if chosen.step == "score":
        return score(chosen.folder)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if chosen.folder is not None:
            folder = chosen.folder / f"{chosen.unit}-{chosen.shards}"
            folder.mkdir(parents=True, exist_ok=True)
        options = ["--folder", folder, "--shards", chosen.shards, "--order", chosen.order, "--unit", chosen.unit]
        report(folder, [*options, "--smoothing", chosen.smoothing, "--text", chosen.text], chosen.unit)


if __name__ == "__main__":
    main()
