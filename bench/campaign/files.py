"""Changed files for every reader of ours: each is read, or refused with an error of ours, quickly and in little memory.

A file passes where its reader ends within LIMIT seconds, either well or with a `CutawayError`, and leaves nothing half
done; and where the most memory that it took, beyond what the process had, is at most TIMES the files' bytes and ROOM.
The process may map MAPPED more than it had (RLIMIT_AS). Anything else fails: a traceback, a crash, a hang, a flood.

Files are tried in forks of a process that has imported everything, many in each; after a failure comes a new one.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUTAWAY_TYPECHECK": "0", "COLUMNS": "200"}

MEGABYTE = 1 << 20
LIMIT = 10  # seconds
MAPPED = 2048 * MEGABYTE
TIMES, ROOM = 20, 256 * MEGABYTE
BATCH = 250  # files that one process tries
SHOWN = 400  # failures that are printed
GOOD = ("read", "refused")


class Trial(NamedTuple):
    """Which file of which sample is changed; the number decides how."""

    reader: int
    number: int


class Fate(NamedTuple):
    """What became of a trial, what was said, and what it took."""

    trial: Trial
    fate: str
    said: str = ""
    seconds: float = 0.0
    memory: int = 0


def run(seed: int, n: int = 100_000, only: str = "", at: int = -1, keep: str = "") -> int:
    """Tries n files and says what became of them, reader by reader; the number of those that failed.

    `only` is part of a reader's name, `at` the number of one trial, `keep` a folder to which what fails is copied.
    """
    from campaign import changes, samples_before, samples_data, samples_models, samples_runs

    _ = changes  # imported once, before the forks
    modules = (samples_data, samples_before, samples_models, samples_runs)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        root = Path(folder)
        os.environ |= {"CUTAWAY_CACHE": str(root / "cache"), "HOME": folder}
        (root / "samples").mkdir()
        readers = [_made(make, root / "samples") for module in modules for make in module.MAKERS]
        _check_sound(readers, root)
        chosen = [i for i, reader in enumerate(readers) if only in reader.name]
        shares = sum(readers[i].share for i in chosen)
        trials = [Trial(i, k) for i in chosen for k in range(round(n * readers[i].share / shares))]
        trials = [trial for trial in trials if at in (-1, trial.number)]
        fates: dict[int, list[Fate]] = defaultdict(list)
        failures: Counter[str] = Counter()
        begin = time.perf_counter()
        for done in _tried(trials, readers, seed, root, keep):
            fates[done.trial.reader].append(done._replace(said=""))
            if done.fate not in GOOD:
                failures[_kind(done)] += 1
                if failures[_kind(done)] <= 3 and failures.total() <= SHOWN:
                    name = readers[done.trial.reader].name
                    print(f"{done.fate}: {name}, --at {done.trial.number}\n{done.said}", flush=True)
        _report(readers, fates, failures, time.perf_counter() - begin)
        return failures.total()


def _made(make: Any, folder: Path) -> Any:
    place = folder / make.__name__.strip("_")
    place.mkdir()
    return make(place)


def _check_sound(readers: list[Any], root: Path) -> None:
    """Every sample is read before it is changed; what is imported on the way is imported once for all."""
    for reader in readers:
        for sample in reader.samples:
            folder = _written(root / "sound", sample)
            try:
                reader.read(folder / "in", folder / "out")
            except Exception as error:
                raise RuntimeError(f"{reader.name}: {error}") from error


def _tried(trials: list[Trial], readers: list[Any], seed: int, root: Path, keep: str) -> Iterator[Fate]:
    """One fork after the other, each as far as it comes."""
    at = 0
    while at < len(trials):
        some = [trial for trial in trials[at : at + BATCH] if trial.reader == trials[at].reader]
        read, write = os.pipe()
        process = os.fork()
        if not process:
            os.close(read)
            _work(some, readers, seed, root, keep, write)
        os.close(write)
        begun = ended = 0
        with os.fdopen(read) as pipe:
            for line in pipe:
                if line.startswith("{"):
                    ended += 1
                    yield Fate(some[begun - 1], **json.loads(line))
                else:
                    begun += 1
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if begun > ended:
            name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            yield Fate(some[begun - 1], f"FAILS, {'more than 10 s' if name == 'SIGALRM' else name}")
        at += max(1, begun)


def _work(trials: list[Trial], readers: list[Any], seed: int, root: Path, keep: str, pipe: int) -> None:
    """In a fork: tries files until one fails, and tells what became of each."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MAPPED, resource.RLIM_INFINITY))
    try:
        for trial in trials:
            os.write(pipe, b"begun\n")
            fate = _try(trial, readers[trial.reader], seed, root, keep)
            os.write(pipe, json.dumps({k: v for k, v in fate._asdict().items() if k != "trial"}).encode() + b"\n")
            if fate.fate not in GOOD:
                break
    except BaseException:  # of the campaign itself
        os.write(pipe, json.dumps({"fate": "FAILS, the campaign", "said": traceback.format_exc()}).encode() + b"\n")
    finally:
        os._exit(0)


def _try(trial: Trial, reader: Any, seed: int, root: Path, keep: str) -> Fate:
    from campaign.changes import changed

    draw = Random(f"{seed} {reader.name} {trial.number}")
    samples = [*reader.samples, *reader.odd]
    sample = dict(original := draw.choice(samples))
    able = [name for name in sample if name.endswith(tuple(reader.only.split()) or "")]
    n_changes = draw.choice((0, 1, 1)) if original in reader.odd else draw.choice((1, 1, 1, 1, 2))
    for name in draw.sample(able, min(len(able), n_changes)):
        others = [data for files in draw.sample(samples, min(3, len(samples))) for data in files.values()]
        sample[name] = changed(name, sample[name], others, draw)
    folder = _written(root / "trial", sample)
    size = sum(map(len, sample.values()))
    Path("/proc/self/clear_refs").write_text("5")  # the most memory so far is what there is now
    before, begin = _memory("VmRSS"), time.perf_counter()
    fate, said = "read", ""
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        reader.read(folder / "in", folder / "out")
    except Exception as error:
        fate, said = ("refused", str(error)) if _is_ours(error) else ("FAILS, a traceback", traceback.format_exc())
    except BaseException:
        fate, said = "FAILS, a traceback", traceback.format_exc()
    signal.setitimer(signal.ITIMER_REAL, 0)
    seconds, memory = time.perf_counter() - begin, _memory("VmHWM") - before
    if fate in GOOD and memory > TIMES * size + ROOM:
        fate, said = "FAILS, too much memory", f"{memory >> 20:,} MB for {size:,} bytes; {fate}: {said}"
    if fate == "refused" and (left := _half_done(folder / "out")):
        fate, said = "FAILS, something half done", f"{left}; {said}"
    if fate == "refused":
        fate, said = _message(said, sample)
    if fate not in GOOD and keep:
        shutil.copytree(folder, Path(keep) / f"{reader.name} {trial.number}".replace("/", "-"), dirs_exist_ok=True)
    return Fate(trial, fate, said[-3000:], round(seconds, 3), memory)


def _written(folder: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "out").mkdir(parents=True)
    for name, data in files.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def _half_done(out: Path) -> list[str]:
    """What a reader that refused a file has left where it writes; locks may stay."""
    return [str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and path.suffix != ".lock"]


def _message(said: str, sample: dict[str, bytes]) -> tuple[str, str]:
    """An error names the file, or the folder in which it lies."""
    named = "trial/in" in said or any(Path(name).name in said for name in sample)
    if not said.isprintable() and any((ord(c) < 32 and c not in "\n\t") or 0xD800 <= ord(c) < 0xE000 for c in said):
        return "FAILS, a message that cannot be shown", ascii(said)
    if len(said) > 5000:
        return "FAILS, an endless message", said[:300]
    return ("refused", said) if named else ("FAILS, a message without the file", said)


def _memory(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def _is_ours(error: BaseException) -> bool:
    from cutaway.errors import CutawayError

    return isinstance(error, CutawayError)


def _kind(done: Fate) -> str:
    """Failures of one kind have one last frame and one error."""
    lines = [line.strip() for line in done.said.splitlines()]
    frames = [line for line in lines if line.startswith("File ")]
    with contextlib.suppress(IndexError):
        return f"{done.fate} | {frames[-1]} | {lines[-1][:60]}"
    return f"{done.fate} | {done.trial.reader} | {done.said[:40]}"


def _report(readers: list[Any], fates: dict[int, list[Fate]], failures: Counter[str], seconds: float) -> None:
    print(f"\n{'reader':28s} {'tried':>7s} {'read':>7s} {'refused':>8s} {'failed':>7s} {'slowest':>8s} {'memory':>8s}")
    total: Counter[str] = Counter()
    for i, its in sorted(fates.items()):
        counts = Counter(fate.fate if fate.fate in GOOD else "failed" for fate in its)
        total += counts
        slowest, most = max(fate.seconds for fate in its), max(fate.memory for fate in its)
        print(
            f"{readers[i].name:28s} {len(its):7,} {counts['read']:7,} {counts['refused']:8,} {counts['failed']:7,} "
            f"{slowest:6.1f} s {most >> 20:5,} MB"
        )
    for kind, count in failures.most_common():
        print(f"{count:6d}  {kind}")
    print(
        f"{total.total():,} files in {seconds:,.0f} s: {total['read']:,} read, {total['refused']:,} refused, "
        f"{total['failed']:,} failed"
    )
