"""Many lines through the real `cutaway translate`, with a tiny model: the memory it takes, and what kills do to it.

.venv/bin/python bench/translate_lines.py [LINES] [KILLS]

A tenth of the lines and all of them are translated, from file to file and from stdin to stdout: the peak of resident
memory must not grow with the lines. Then the command is killed (SIGKILL) at random moments and started again with
`--resume`: its output must be the uninterrupted one, byte for byte.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from cutaway.checkpoints import save
from cutaway.families import build
from cutaway.tokens import Tokenizer

WORDS = "the quick brown fox jumps over a lazy dog . It was good ! and then Dr. Who came".split()


def letters() -> Tokenizer:
    """Every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={byte: id for id, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def write_model(folder: Path) -> None:
    numbers = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64}
    ends = tuple(range(0, 256, 2))  # random words end soon
    save(build("transformer-tiny", seed=0, vocab_size=260, start_id=257, end_ids=ends, tied=False, **numbers), folder,
         letters())  # fmt: skip


def write_lines(path: Path, n: int) -> None:
    chance = random.Random(0)
    with path.open("w") as file:
        for number in range(n):
            file.write(f"{number} {' '.join(chance.choices(WORDS, k=chance.randint(0, 8)))}\n" if number % 50 else "\n")


def command(model: Path, *more: object) -> list[str]:
    return [sys.executable, "-m", "cutaway", "translate", "--model", str(model), "--beam", "2", *map(str, more)]


def memory(pid: int) -> tuple[float, float]:
    """Resident now, and at most so far, in MiB; zeros when the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0, 0.0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    now, peak = (int(fields.get(name, "0").split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


GROWTH = 1.15  # of memory, for ten times the lines: more is a leak


def watched(what: str, n: int, arguments: list[str], **pipes: object) -> tuple[float, float]:
    """Runs it, and prints its peak of memory halfway and at the end; how many seconds it took, and MiB."""
    begin, peaks = time.perf_counter(), [0.0]
    process = subprocess.Popen(arguments, **pipes)  # type: ignore[call-overload]
    while process.poll() is None:
        peaks.append(memory(process.pid)[1] or peaks[-1])
        time.sleep(0.05)
    assert process.returncode == 0, process.returncode
    took = time.perf_counter() - begin
    print(f"{what:<16} {n:>9,} lines  peak halfway {peaks[len(peaks) // 2]:6.1f} MiB, at the end {peaks[-1]:6.1f} MiB  "
          f"{took:6.1f} s  {n / took:6.0f} lines/s", flush=True)  # fmt: skip
    return took, peaks[-1]


def killed(source: Path, output: Path, model: Path, kills: int, seconds: float) -> int:
    """Kills it at random moments, starts it again; how many lines were there at each kill is printed."""
    chance, done = random.Random(1), 0
    while True:
        process = subprocess.Popen(command(model, "--input", source, "--output", output, "--resume"))
        before = output.stat().st_size if output.exists() else 0
        while process.poll() is None and (not output.exists() or output.stat().st_size == before):
            time.sleep(0.01)  # it has not begun to write
        if process.poll() is None and done < kills:
            time.sleep(chance.uniform(0, 1.6 * seconds / (kills + 1)))
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            return done
        assert process.returncode == -signal.SIGKILL, process.returncode
        done += 1
        written = output.read_bytes().count(b"\n")
        print(f"  killed with {written:>9,} lines written", flush=True)


def main(n: int, kills: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        write_model(model)
        peaks: dict[str, list[float]] = {"file": [], "pipe": []}
        for some in (n // 10, n):
            source, output = folder / f"{some}.in", folder / f"{some}.out"
            write_lines(source, some)
            seconds, peak = watched("file to file", some, command(model, "--input", source, "--output", output))
            peaks["file"].append(peak)
            piped = folder / f"{some}.piped"
            with source.open("rb") as stdin, piped.open("wb") as stdout:
                peaks["pipe"].append(watched("stdin to stdout", some, command(model), stdin=stdin, stdout=stdout)[1])
            assert piped.read_bytes() == output.read_bytes()
            assert output.read_bytes().count(b"\n") == some
        for way, (few, many) in peaks.items():
            assert many < GROWTH * few, f"{way}: {many:.0f} MiB for {n:,} lines, {few:.0f} for a tenth of them"
        resumed = folder / "resumed"
        count = killed(source, resumed, model, kills, seconds)
        assert resumed.read_bytes() == output.read_bytes(), "the resumed output differs"
        print(f"killed {count} times: the {n:,} lines are the same, byte for byte")


if __name__ == "__main__":
    main(*(int(x) for x in (sys.argv[1:] + ["100000", "5"][len(sys.argv) - 1 :])))
