"""Runs that are killed at random instants and resumed end as the undisturbed run: same weights, optimizer, batches.

    .venv/bin/python bench/kill_loop.py --runs 100                                  # a small GPT on the CPU
    .venv/bin/python bench/kill_loop.py --runs 20 --compile                         # the same, compiled
    python bench/kill_loop.py --runs 100 --jobs 8 --device cuda --deterministic     # on a GPU
    .venv/bin/python bench/kill_loop.py --recipe recipes/….toml --set train.steps=200

Every start is a process of its own, and SIGKILL ends it: at a random instant of its training, or, in every third run,
while it saves. Then it is resumed, and killed again, until it was killed often enough; the last start ends the run.
The exit code is 1 if anything differs. On a GPU without --deterministic only the order of batches, the learning rates
and the random numbers must be the same.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from faults.forks import recorded  # noqa: E402
from faults.killing import checkpoint_folders, fingerprints, small, steps_in, write_text  # noqa: E402

ORDER = ("step", "examples", "batch", "rate")
COLUMNS = ("weights", "optimizer", "average", "random", "state", "model.safetensors", "batches")
PATIENCE = 600.0  # seconds that a start may take: a guard against hanging


# --- the worker: one start of a run ----------------------------------------------------------------------------------


def work(request: dict[str, Any]) -> None:
    from cutaway.training import train as module
    from cutaway.training.recipe import recipe_from

    out = Path(request["out"])
    module.take_step = recorded(module.take_step, Path(request["record"]))  # type: ignore[attr-defined]
    module.train(recipe_from(request["recipe"]), out, resume=bool(checkpoint_folders(out)))


def start(recipe: dict[str, Any], out: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Starts or resumes the run; what it prints goes to a file beside it."""
    request = json.dumps({"recipe": recipe, "out": str(out), "record": str(record_of(out))})
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "CUTAWAY_CACHE": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(paths)}
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    with out.with_suffix(".printed").open("ab") as printed:
        command = [sys.executable, __file__, "--worker", request]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, env=environment)


def record_of(out: Path) -> Path:
    return out.with_suffix(".steps")


# --- one run ---------------------------------------------------------------------------------------------------------


@dataclass
class Killed:
    """What happened to one run, and which of its parts are the same."""

    number: int
    seed: int
    kills: list[str] = field(default_factory=list)  # where it was each time
    starts: int = 0
    while_saving: int = 0
    before_any: int = 0
    same: dict[str, bool] = field(default_factory=dict)
    trouble: str = ""


def killed_run(
    number: int, options: argparse.Namespace, recipe: dict[str, Any], folder: Path, seconds: float
) -> Killed:
    """A run that is killed some times and then left in peace."""
    draw = random.Random(f"{options.seed} {number}")
    result = Killed(number, options.seed)
    out = folder / f"run-{number:03d}"
    wanted = draw.randint(1, options.kills)
    saving = number % 3 == 2
    while True:
        process = start(recipe, out, folder)
        result.starts += 1
        if len(result.kills) < wanted and wait_for_the_instant(process, out, draw, seconds, saving):
            process.send_signal(signal.SIGKILL)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            result.trouble = f"it hung for {PATIENCE:.0f} s"
            return result
        if code == -signal.SIGKILL:
            note_kill(result, out)
        elif code:
            result.trouble = out.with_suffix(".printed").read_text(errors="replace").strip()[-800:]
            return result
        elif result.kills:
            return result
        else:  # it was done before the instant came: once more from the beginning
            for path in (out, out.with_suffix(".printed"), record_of(out)):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def wait_for_the_instant(
    process: subprocess.Popen[bytes], out: Path, draw: random.Random, seconds: float, saving: bool
) -> bool:
    """Waits for training to begin, and then a random while, or for a save; false if the process ended before."""
    log, folder = out / "run" / "log.jsonl", out / "run" / "checkpoints"
    begun = len(record_of(out).read_bytes()) if record_of(out).exists() else 0
    until = time.monotonic() + PATIENCE

    def alive() -> bool:
        return process.poll() is None and time.monotonic() < until

    here = log.stat().st_size if log.exists() else 0
    while alive() and not (log.exists() and log.stat().st_size > here):  # it speaks when it begins to read its data
        time.sleep(0.002)
    if saving:
        skip = draw.randrange(4)  # not always the first save
        while alive():
            if folder.is_dir() and any(path.name.startswith(".step-") for path in folder.iterdir()):
                if skip == 0:
                    time.sleep(draw.random() * 0.02)
                    return alive()
                skip -= 1
                while alive() and any(path.name.startswith(".step-") for path in folder.iterdir()):
                    time.sleep(0.0005)
            time.sleep(0.0005)
        return False
    if draw.random() < 0.8:  # else also while it reads its data and builds the model
        while alive() and (not record_of(out).exists() or record_of(out).stat().st_size <= begun):
            time.sleep(0.002)
    end = time.monotonic() + draw.random() * seconds
    while alive() and time.monotonic() < end:
        time.sleep(0.002)
    return alive()


def note_kill(result: Killed, out: Path) -> None:
    folder = out / "run" / "checkpoints"
    steps = steps_in(record_of(out))
    half = folder.is_dir() and any(path.name.startswith((".step-", ".old-")) for path in folder.iterdir())
    result.while_saving += half
    result.before_any += not checkpoint_folders(out)
    result.kills.append((str(steps[-1]["step"] + 1) if steps else "0") + ("s" if half else ""))


def compare(result: Killed, out: Path, reference: Path, exact: bool) -> None:
    found, wanted = fingerprints(out), fingerprints(reference)
    for name in COLUMNS[:-1]:
        if name in wanted:
            result.same[name] = found[name] == wanted[name]
    keys = (*ORDER, "terms", "length", "skip") if exact else ORDER
    result.same["batches"] = order_of(record_of(out), keys) == order_of(record_of(reference), keys)


def order_of(record: Path, keys: tuple[str, ...]) -> list[Any]:
    """What each step saw, and with all keys what it found; a step that was taken twice must have been the same."""
    seen: dict[int, Any] = {}
    for step in steps_in(record):
        told = {key: step[key] for key in keys}
        if seen.setdefault(step["step"], told) != told:
            return [f"step {step['step']} was another the second time"]
    return [seen[step] for step in sorted(seen)]


# --- all of them -----------------------------------------------------------------------------------------------------


def recipe_for(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The recipe as plain values, with what the options change."""
    from cutaway.training.recipe import read_recipe, recipe_from

    if options.recipe:
        values = read_recipe(options.recipe, options.set).to_dict()
    else:
        write_text(folder / "text.txt")
        values = small(folder, train_steps=options.steps, train_spike=0.0, model_d_model=64, model_d_ff=256)
    values["train"] |= {"device": options.device}
    if options.device == "cpu":
        values["train"]["threads"] = options.threads
    if options.compile:
        values["train"]["compile"] = "default"
    if options.deterministic:
        values["train"]["deterministic"] = True
    recipe_from(values)
    return values


def must_be_same(options: argparse.Namespace) -> tuple[str, ...]:
    exact = options.deterministic or options.device == "cpu"
    return COLUMNS if exact else ("random", "batches")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=3, help="each run is killed 1 … so many times (default 3)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seed", type=int, default=2017, help="of the instants")
    parser.add_argument("--recipe", type=Path, help="instead of a small GPT on a small text")
    parser.add_argument("--set", action="append", default=[], help="change a value of the recipe: train.steps=200")
    parser.add_argument("--steps", type=int, default=120, help="of the small GPT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; other numbers give other bits")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--deterministic", action="store_true", help="on a GPU: expect the same bits")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(json.loads(options.worker))
        return 0
    import torch

    folder = Path(tempfile.mkdtemp(prefix="kill-loop-"))
    recipe = recipe_for(options, folder)
    reference = folder / "reference"
    began = time.monotonic()
    if start(recipe, reference, folder).wait():
        print(reference.with_suffix(".printed").read_text())
        return 1
    seconds = seconds_of(reference)
    settings = f"compile {recipe['train'].get('compile', 'no')}, deterministic {options.deterministic or 'default'}"
    print(
        f"torch {torch.__version__}, Python {sys.version.split()[0]}, {options.device}, {settings}, seed {options.seed}"
    )
    print(f"{len(steps_in(record_of(reference)))} steps in {seconds:.1f} s, undisturbed\n")
    columns = [name for name in COLUMNS if name in fingerprints(reference) or name == "batches"]
    print(
        f"| run | killed at step (s: while saving) | starts | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}"
    )
    results: list[Killed] = []

    def one(number: int) -> Killed:
        result = killed_run(number, options, recipe, folder, seconds)
        if not result.trouble:
            compare(result, folder / f"run-{number:03d}", reference, must_be_same(options) == COLUMNS)
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(one, range(options.runs)):
            results.append(result)
            marks = ["same" if result.same.get(name) else "**other**" for name in columns]
            print(f"| {result.number} | {' '.join(result.kills)} | {result.starts} | {' | '.join(marks)} |", flush=True)
            if result.trouble:
                print(result.trouble, file=sys.stderr)
            elif all(result.same[name] for name in columns):
                shutil.rmtree(folder / f"run-{result.number:03d}")
    return verdict(results, [name for name in columns if name in must_be_same(options)], folder, began)


def seconds_of(out: Path) -> float:
    """From the first step that was told of, which waits for the compiler, to the end."""
    from cutaway.training.log import read_log

    told = [event["seconds"] for event in read_log(out / "run" / "log.jsonl") if event["event"] in ("step", "end")]
    return told[-1] - told[0]


def verdict(results: list[Killed], columns: list[str], folder: Path, began: float) -> int:
    bad = [r for r in results if r.trouble or not all(r.same.get(name) for name in columns)]
    kills = sum(len(r.kills) for r in results)
    print(f"\n{len(results)} runs, {kills} kills ({sum(r.while_saving for r in results)} while saving, "
          f"{sum(r.before_any for r in results)} before the first checkpoint), "
          f"{sum(r.starts for r in results)} starts, {time.monotonic() - began:.0f} s")  # fmt: skip
    if bad:
        print(f"NOT THE SAME: runs {', '.join(str(r.number) for r in bad)}; they stay in {folder}")
        return 1
    print(f"the same in all of them: {', '.join(columns)}")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
