"""From nothing to the first translation: `cutaway --help`, and `cutaway translate` beside a bare `import torch`.

.venv/bin/python bench/cold_start.py [ROUNDS]

Each is a fresh process, from its start to its end, and they take turns. The model is a Transformer base (65 million
weights, with its vocabulary of 37,000) with random weights; its file is in the page cache. One sentence goes in, and as
many tokens come out of a beam of 4; most are none of the small tokenizer's and are not spelled. The aims: `--help`
within 0.3 s, a translation within 1 s of `import torch`. CPU time (user and system) stands beside the clock, because a
busy machine stretches the clock more.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cutaway.checkpoints import save
from cutaway.families import build
from cutaway.tokens.tokenizer_training import train_tokenizer

SENTENCE = "The quick brown fox jumps over the lazy dog."
START, VOCAB = 1, 37_000


def write_model(folder: Path) -> str:
    """How many tokens it reads and writes."""
    tokenizer = train_tokenizer([SENTENCE] * 20, kind="bpe", vocab_size=300)
    source = len(tokenizer.encode(SENTENCE, special=False)) + 1
    ids = {"vocab_size": VOCAB, "start_id": START, "end_ids": (2,)}
    # random words never end: the limit of positions ends them where a trained model would
    save(build("transformer-base", seed=0, max_len=source, **ids), folder, tokenizer)
    return f"{source} tokens in, as many out"


def timed(arguments: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and of the CPU."""
    begin, before = time.perf_counter(), os.times()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, cpu


def main(rounds: int) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    with tempfile.TemporaryDirectory() as name:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{name}/compiled"
        folder = Path(name) / "model"
        print(f"Transformer base, random weights: {write_model(folder)}")
        python = [sys.executable, "-m", "cutaway"]
        commands = {
            "cutaway --help": [*python, "--help"],
            "import torch": [sys.executable, "-c", "import torch"],
            "cutaway translate": [*python, "translate", SENTENCE, "--model", str(folder)],
            "… --precision int8": [*python, "translate", SENTENCE, "--model", str(folder), "--precision", "int8"],
        }
        for command in commands.values():
            timed(command)
        taken: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
        for _ in range(rounds):
            for what, command in commands.items():
                taken[what].append(timed(command))
        torch = [statistics.median(column) for column in zip(*taken["import torch"], strict=True)]
        print(f"{'':20}{'clock':>9}{'CPU':>9}{'behind torch':>22}")
        for what, times in taken.items():
            clock, cpu = (statistics.median(column) for column in zip(*times, strict=True))
            later = what not in ("cutaway --help", "import torch")
            behind = f"{clock - torch[0]:>10.2f} s{cpu - torch[1]:>8.2f} s" if later else ""
            print(f"{what:20}{clock:>7.2f} s{cpu:>7.2f} s  {behind}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
