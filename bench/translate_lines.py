"""Many lines through `cutaway translate`'s way, with a tiny model: the peak of memory does not grow with the lines.

.venv/bin/python bench/translate_lines.py [LINES]
"""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from cutaway.decoding.lines import Report, to_file
from cutaway.decoding.translate import translations
from cutaway.families import build
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

WORDS = "the quick brown fox jumps over a lazy dog . It was good ! and then Dr. Who came".split()


def letters() -> Tokenizer:
    """Every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={byte: id for id, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def write_lines(path: Path, n: int) -> None:
    chance = random.Random(0)
    with path.open("w") as file:
        for number in range(n):
            file.write(f"{number} {' '.join(chance.choices(WORDS, k=chance.randint(0, 12)))}\n")


def main(n: int) -> None:
    torch.set_num_threads(1)
    numbers = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}
    ends = tuple(range(0, 256, 8))  # random words end soon
    model = build("transformer-tiny", seed=0, vocab_size=260, start_id=257, end_ids=ends, tied=False, **numbers).eval()
    assert isinstance(model, EncoderDecoderModel)
    tokenizer, begin, marks = letters(), time.perf_counter(), [1000, 10_000, 100_000, 1_000_000]

    def report(done: int, total: int) -> None:
        if marks and done >= marks[0]:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            rate = done / (time.perf_counter() - begin)
            print(f"{marks.pop(0):>9,} lines  peak {peak:6.0f} MiB  {rate:6.0f} lines/s", flush=True)

    def answer(texts: list[str], tell: Report) -> list[str]:
        return [found.text for found in translations(model, tokenizer, texts, beam=2, report=tell)]

    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in", Path(folder) / "out"
        write_lines(source, n)
        with source.open("rb") as file:
            new = to_file(file, output, answer, settings={}, report=report)
        assert new == n == output.read_bytes().count(b"\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{n:>9,} lines  peak {peak:6.0f} MiB  {n / (time.perf_counter() - begin):6.0f} lines/s  at the end")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
