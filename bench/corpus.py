"""A corpus of 2 GB: how much memory tokenising takes, how fast it is, and how soon training starts the second time.

    .venv/bin/python bench/corpus.py                                   # several minutes, and 6 GB of disk for a while
    .venv/bin/python bench/corpus.py --megabytes 100                   # a first look
    .venv/bin/python bench/corpus.py --text FOLDER --folder /big/disk  # other text, another place

The text is that of *.xz, *.gz and *.txt in a folder, repeated as often as needed; where there is none, random words.
Each step runs in a process of its own, so that its memory is its own. Aims: < 1 GB resident; < 10 s the second time.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MEGABYTE = 1_000_000
DEFAULT_TEXT = Path(__file__).parents[2] / "shared" / "data" / "gutenberg"
SEQ_LEN, ROWS = 1024, 8


def pieces(folder: Path) -> Iterator[str]:
    """The text of a folder over and over; without one, lines of random words."""
    from cutaway.data.text_files import read_documents

    files = sorted(path for pattern in ("*.xz", "*.gz", "*.txt") for path in folder.glob(pattern))
    while files:
        for piece in read_documents(files, "form_feed"):
            yield piece.text + ("\f" if piece.ends else "")
    choose = random.Random(0)
    words = ["".join(choose.choices("etaoinshrdlu", k=choose.randint(1, 9))) for _ in range(50_000)]
    while True:
        yield "".join(" ".join(choose.choices(words, k=12)) + "\n" for _ in range(1000)) + "\f"


def make(text: Path, folder: Path, megabytes: int, vocab_size: int) -> None:
    """Write the text, and train the tokenizer on its beginning."""
    from cutaway.tokens.tokenizer_training import train_tokenizer

    beginning, length = [], 0
    with (folder / "text.txt").open("w", encoding="utf-8") as file:
        for piece in pieces(text):
            file.write(piece)
            length += len(piece.encode())
            if length < 20 * MEGABYTE:
                beginning.append(piece)
            if length >= megabytes * MEGABYTE:
                break
    train_tokenizer(beginning, kind="bpe", vocab_size=vocab_size).save(folder)


def tokenise(folder: Path) -> None:
    """Open the corpus, which makes it the first time, and take the first batch from it; tell what that took."""
    start = time.perf_counter()
    from cutaway.data.batches import Windows
    from cutaway.data.corpus import tokenised_documents
    from cutaway.tokens import Tokenizer

    tokenizer = Tokenizer.load(folder)
    loaded, before = time.perf_counter(), peak()
    corpus = tokenised_documents(
        [folder / "text.txt"], tokenizer, split="form_feed", end_id=tokenizer.eos_id, cache=folder / "cache"
    )
    opened = time.perf_counter()
    Windows(corpus, rows=ROWS, seq_len=SEQ_LEN)(0)
    measured = {
        "seconds": opened - loaded,
        "to the first batch": time.perf_counter() - start,
        "peak": peak(),
        "imports": before,
        "tokens": len(corpus.ids),
        "documents": len(corpus),
        "bytes": corpus.n_bytes,
    }
    print(json.dumps(measured))


def peak() -> int:
    """The most megabytes that were resident; ru_maxrss would count those of the process that started this one."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 // MEGABYTE for line in status if line.startswith("VmHWM"))


def bar(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done / MEGABYTE:,.0f} of {total / MEGABYTE:,.0f} MB", end="", file=sys.stderr, flush=True)


def in_a_process(*words: object) -> str:
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--vocab", type=int, default=16_000)
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT)
    parser.add_argument("--folder", type=Path, help="where the text and the cache lie for a while")
    parser.add_argument("--step", choices=["make", "tokenise"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step == "make":
        return make(chosen.text, chosen.folder, chosen.megabytes, chosen.vocab)
    if chosen.step == "tokenise":
        return tokenise(chosen.folder)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        options = ["--folder", folder, "--megabytes", chosen.megabytes, "--vocab", chosen.vocab, "--text", chosen.text]
        in_a_process("--step", "make", *options)
        first, second = (json.loads(in_a_process("--step", "tokenise", *options)) for _ in range(2))
    megabytes = first["bytes"] / MEGABYTE
    print(f"{megabytes:,.0f} MB of text, {first['documents']:,} documents, {first['tokens']:,} tokens")
    print(f"first time   {first['seconds']:8.1f} s   {megabytes / first['seconds']:.2f} MB/s")
    print(
        f"             {first['peak']:8,} MB resident at most, of which {first['imports']:,} for imports and tokenizer"
    )
    print(f"second time  {second['to the first batch']:8.1f} s to the first batch, imports included")
    print(f"             {second['peak']:8,} MB resident at most")


if __name__ == "__main__":
    main()
