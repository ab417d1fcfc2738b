"""Single flipped bits in data caches and in checkpoints, each followed by what a user does next.

A flip passes where it is said which file or entry is damaged, and either the run ends as the undamaged one does, bit
for bit, or the command stops with an error of ours. Anything else fails: silence, other weights, a traceback.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "4000", "CUTAWAY_TYPECHECK": "0"}  # no line is wrapped

KINDS = ("next_token", "lines", "pretrain", "spans", "translate", "classify", "pair", "regress", "tag", "images")
STOPPED = 4  # the step of the newest checkpoint that --resume finds; the one before it is of step 2
LIMIT = 120  # seconds that a command may take
MODEL = ("config.json", "model.safetensors", "tokenizer.json")


@dataclass(frozen=True)
class Flip:
    """Which bit of which file, and the command that follows."""

    kind: str
    file: Path  # inside the folder of its kind
    place: int
    bit: int
    command: str  # train, resume, evaluate

    def __str__(self) -> str:
        return f"{self.kind}: bit {self.bit} of byte {self.place} in {self.file}, then {self.command}"


def run(seed: int, n: int = 200, jobs: int = 2) -> int:
    """Tries n flips, and says what became of them; the number of those that failed."""
    import cutaway.cli.evaluate
    import cutaway.training.train

    _ = cutaway.cli.evaluate, cutaway.training.train  # imported once, before the forks
    fates: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for kind in KINDS:
            _prepare(root / kind, kind)
        wanted = {kind: _results(root / kind / "whole") for kind in KINDS}
        flips = [_drawn(root, random.Random(f"{seed} {i}"), i) for i in range(n)]
        for flip, fate, said in _tried(root, flips, wanted, jobs):
            where = "checkpoint" if "half" in flip.file.parts else "cache"
            fates[f"{where}, {flip.command}: {fate}"] += 1
            if fate.startswith("FAILS"):
                print(f"{fate}: {flip}\n{said}", flush=True)
    for fate, count in sorted(fates.items()):
        print(f"{count:5d}  {fate}")
    failed = sum(count for fate, count in fates.items() if "FAILS" in fate)
    print(f"{n} flipped bits, {failed} failed")
    return failed


def _prepare(folder: Path, kind: str) -> None:
    """A run that nobody disturbed, the same run as it was at step STOPPED, its data and its cache."""
    from helpers.toy_recipes import values, write_files

    from cutaway.training.recipe_file import recipe_from, to_toml

    write_files(folder / "data")
    tables: dict[str, Any] = {"train": {"steps": 6, "tokens": 256, "threads": 1, "ema": 0.9 * (kind == "lines")}}
    tables["checkpoint"] = {"every": 2, "keep": 3}
    recipe = recipe_from(values(kind, folder / "data", **tables))
    (folder / "recipe.toml").write_text(to_toml(recipe))

    def work() -> None:
        from cutaway.training.train import train

        def copy(event: dict[str, Any]) -> None:
            if event["event"] == "checkpoint" and event["step"] == STOPPED:
                shutil.copytree(folder / "whole", folder / "half")

        train(recipe, folder / "whole", listeners=[copy])
        if kind == "images":
            _command(["evaluate", str(folder / "whole"), str(folder / "data" / "pictures.npz"), "--json"], folder)

    os.environ["CUTAWAY_CACHE"] = str(folder / "cache")
    status = os.waitstatus_to_exitcode(os.waitpid(_forked(work, folder / "said"), 0)[1])
    if status:
        raise RuntimeError(f"the undisturbed run of {kind} ended with {status}:\n{(folder / 'said').read_text()}")


def _drawn(root: Path, draw: random.Random, i: int) -> Flip:
    """Two in three in a cache, each kind of data as often, each file of it as likely, whatever its size."""
    kind = KINDS[i % len(KINDS)]
    folder, in_cache = root / kind, draw.random() < 2 / 3
    place = folder / "cache" if in_cache else folder / "half" / "run" / "checkpoints" / f"step-{STOPPED:08d}"
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.stat().st_size)
    file = draw.choice(files)
    commands = ["resume"] if not in_cache else ["train", "resume"]
    if in_cache and kind == "images":
        commands.append("evaluate")
    size = file.stat().st_size
    return Flip(kind, file.relative_to(folder), draw.randrange(size), draw.randrange(8), draw.choice(commands))


def _tried(
    root: Path, flips: list[Flip], wanted: dict[str, dict[str, str]], jobs: int
) -> Iterator[tuple[Flip, str, str]]:
    """What became of each, and what was said."""
    waiting, running = list(enumerate(flips)), dict[int, tuple[Flip, Path]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            i, flip = waiting.pop(0)
            folder = root / f"trial{i}"
            running[_start(root / flip.kind, folder, flip)] = flip, folder
        process, status = os.wait()
        flip, folder = running.pop(process)
        said = (folder / "said").read_text(errors="replace")
        yield flip, _fate(flip, folder, os.waitstatus_to_exitcode(status), said, wanted[flip.kind]), said
        shutil.rmtree(folder)


def _start(source: Path, folder: Path, flip: Flip) -> int:
    folder.mkdir()
    for name in ("cache", *(["half"] if flip.command == "resume" else [])):
        shutil.copytree(source / name, folder / name)
    file = folder / flip.file
    data = bytearray(file.read_bytes())
    data[flip.place] ^= 1 << flip.bit
    file.write_bytes(data)
    os.environ["CUTAWAY_CACHE"] = str(folder / "cache")
    recipe = str(source / "recipe.toml")
    words = {
        "train": ["train", recipe, "--out", "half"],
        "resume": ["train", recipe, "--out", "half", "--resume"],
        "evaluate": ["evaluate", str(source / "whole"), str(source / "data" / "pictures.npz"), "--json"],
    }[flip.command]
    return _forked(lambda: _command(words, folder), folder / "said")


def _fate(flip: Flip, folder: Path, status: int, said: str, wanted: dict[str, str]) -> str:
    damaged = flip.file.parent.name  # the entry of the cache, or the checkpoint
    noticed = any(damaged in line for line in said.splitlines())
    if status == 2 and "error:" in said:
        return "an error names it" if noticed else "FAILS, an error that does not name it"
    if status:
        return f"FAILS, exit code {status}"
    if flip.command == "evaluate":
        same = _scores(said) == _scores((folder.parent / flip.kind / "said").read_text())
    else:
        same = _results(folder / "half") == wanted
    if not same:
        return "FAILS, another result"
    return "noticed, the same result" if noticed else "FAILS, not noticed"


def _results(out: Path) -> dict[str, str]:
    """The SHA-256 of what a run leaves."""
    last = max((out / "run" / "checkpoints").glob("step-*"))
    files = [out / name for name in MODEL] + sorted(last.glob("*.safetensors")) + [out / "run" / "done.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.exists()}


def _scores(said: str) -> Any:
    """What `evaluate --json` found, but for the time it took."""
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    return {name: value for name, value in found.items() if name != "seconds"}


# --- a command in a process of its own -------------------------------------------------------------------------------


def _command(words: list[str], folder: Path) -> None:
    from cutaway.cli import app

    with _inside(folder):
        app(words, prog_name="cutaway", standalone_mode=True)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _forked(work: Any, said: Path) -> int:
    """A fork of this process that does this work; what it prints is in the file."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    signal.alarm(LIMIT)
    status = 1
    try:
        paper = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(paper, stream)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
