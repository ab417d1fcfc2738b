"""Runs that are killed at random instants and resumed end as the undisturbed run: same weights, optimizer, batches.

    .venv/bin/python bench/kill_loop.py --runs 100                                   # a small GPT on the CPU
    .venv/bin/python bench/kill_loop.py --runs 20 --compile blocks --lengths         # compiled; batches of two shapes
    python3 bench/kill_loop.py --runs 100 --jobs 8 --device cuda --deterministic     # on a GPU
    .venv/bin/python bench/kill_loop.py --recipe recipes/….toml --set train.steps=200

Every start is a process of its own, and SIGKILL ends it: a random while after a random step, or, in every third run,
before a random one of the calls that reach the disk while it saves. Then it is resumed, and killed again, until it was
killed often enough; the last start ends the run. To save seconds, a start is a fork of a process that has imported
torch and done nothing with it; with --fresh each one imports it anew. The exit code is 1 if anything differs. On a GPU
without --deterministic only the order of batches and the learning rates must be the same.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])

from helpers.faults.forks import SPOILT  # noqa: E402
from helpers.faults.killed_runs import (  # noqa: E402
    Ended,
    Reference,
    Starter,
    checkpoint_folders,
    fingerprints,
    ragged,
    small,
    steps_in,
    undisturbed,
    write_text,
)

ORDER = ("step", "examples", "batch", "rate")
PARTS = ("weights", "optimizer", "average", "state", "model.safetensors")
PATIENCE = 300  # seconds that a start may take: a guard against hanging


@dataclass
class Killed:
    """What happened to one run, and what is not as it should be."""

    number: int
    kills: list[str] = field(default_factory=list)  # where it was each time
    starts: int = 0
    while_saving: int = 0
    before_any: int = 0
    other: list[str] = field(default_factory=list)
    trouble: str = ""


class KillLoop:
    """All runs of a command, each with a starter of its own while it lasts."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.recipe = recipe_for(options, folder)
        self.more: dict[str, Any] = {"limit": PATIENCE, "spoilt": {} if options.recipe else SPOILT}
        self.exact = options.deterministic or options.device == "cpu"
        self.starters: SimpleQueue[Starter] = SimpleQueue()
        for _ in range(options.jobs):
            self.starters.put(self._starter())
        starter = self.starters.get()
        self.reference: Reference = undisturbed(starter, folder, self.recipe, **self.more)
        self.starters.put(starter)
        self.steps, self.seconds = len(steps_in(self.reference.record)), seconds_of(self.reference.out)

    def _starter(self) -> Starter:
        return Starter(self.folder / "cache")

    def close(self) -> None:
        while not self.starters.empty():
            self.starters.get().close()

    def run(self, number: int) -> Killed:
        """A run that is killed some times and then left in peace."""
        result, starter = Killed(number), self.starters.get()
        draw = random.Random(f"{self.options.seed} {number}")
        wanted, out, record = draw.randint(1, self.options.kills), self._out(number), self._record(number)
        while not result.trouble:
            kill = self._instant(draw, number, out) if len(result.kills) < wanted else {}
            if self.options.fresh:
                starter.close()
                starter = self._starter()
            resume = bool(result.kills)
            ended = starter.train(self.recipe, out, resume=resume, record=record, kill=kill, **self.more)
            result.starts += 1
            if ended.killed:
                self._note(result, kill)
            elif ended.signal or ended.exit:
                result.trouble = _trouble(ended)
            elif result.kills:
                break
            else:  # it was done before the instant came: once more from the beginning
                shutil.rmtree(out)
                record.unlink()
        self.starters.put(starter)
        self._compare(result)
        return result

    def _out(self, number: int) -> Path:
        return self.folder / f"run-{number:03d}"

    def _record(self, number: int) -> Path:
        return self.folder / f"run-{number:03d}.jsonl"

    def _instant(self, draw: random.Random, number: int, out: Path) -> dict[str, Any]:
        if number % 3 == 2:
            save = draw.randrange(1, min(5, len(self.reference.calls)))
            return {"save": save - 1, "call": draw.randrange(len(self.reference.calls[save]))}
        there = checkpoint_folders(out)
        done = int(there[-1].name.removeprefix("step-")) if there else 0
        after = 0 if draw.random() < 0.1 else draw.randint(min(done + 1, self.steps), self.steps)  # 0: as it begins
        return {"after": after, "seconds": draw.random() * 2 * self.seconds / self.steps}

    def _note(self, result: Killed, kill: dict[str, Any]) -> None:
        steps = steps_in(self._record(result.number))
        result.while_saving += "save" in kill
        result.before_any += not checkpoint_folders(self._out(result.number))
        result.kills.append((str(steps[-1]["step"] + 1) if steps else "0") + ("s" if "save" in kill else ""))

    def _compare(self, result: Killed) -> None:
        if result.trouble:
            return
        wanted, record = self.reference.prints, self._record(result.number)
        if self.exact:
            found = fingerprints(self._out(result.number))
            result.other = [name for name in PARTS if found.get(name) != wanted.get(name)]
        keys = (*ORDER, "terms", "length", "skip") if self.exact else ORDER
        if _order_of(record, keys) != _order_of(self.reference.record, keys):
            result.other.append("batches")
        if not result.other:
            shutil.rmtree(self._out(result.number))


def _trouble(ended: Ended) -> str:
    if ended.signal == signal.SIGALRM:
        return f"it hung for {PATIENCE} s"
    return ended.error or f"exit code {ended.exit}, signal {ended.signal}: see above"


def _order_of(record: Path, keys: tuple[str, ...]) -> list[Any]:
    """What each step saw, and with all keys what it found; a step that was taken twice must have been the same."""
    seen: dict[int, Any] = {}
    for step in steps_in(record):
        told = {key: step[key] for key in keys}
        if seen.setdefault(step["step"], told) != told:
            return [f"step {step['step']} was another the second time"]
    return [seen[step] for step in sorted(seen)]


def seconds_of(out: Path) -> float:
    """From the first step that was told of, which waits for the compiler, to the end."""
    from cutaway.training.run_log import read_log

    told = [event["seconds"] for event in read_log(out / "run" / "log.jsonl") if event["event"] in ("step", "end")]
    return told[-1] - told[0]


def recipe_for(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The recipe as plain values, with what the options change."""
    from cutaway.training.recipe_file import change, read_recipe, recipe_from

    if options.recipe:
        values = read_recipe(options.recipe).to_dict()
    else:
        write_text(folder / "text.txt")
        values = (ragged if options.lengths else small)(folder, train_steps=options.steps, train_spike=0.0)
        values["model"] |= {"d_model": 64, "d_ff": 256}
    values["evaluate"]["log"] = 1  # every step is told of
    values["train"]["device"] = options.device
    values["train"] |= {"compile": options.compile} if options.compile else {}
    values["train"] |= {"threads": options.threads} if options.device == "cpu" else {}
    values["train"] |= {"deterministic": True} if options.deterministic else {}
    for text in options.set:
        change(values, text)
    recipe_from(values)
    return values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=3, help="each run is killed 1 … so many times (default 3)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seed", type=int, default=2017, help="of the instants")
    parser.add_argument("--recipe", type=Path, help="instead of a small GPT on a small text")
    parser.add_argument("--lengths", action="store_true", help="a small BERT on sentences of two lengths instead")
    parser.add_argument("--set", action="append", default=[], help="change a value of the recipe: train.steps=200")
    parser.add_argument("--steps", type=int, default=80, help="of the small GPT or BERT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; other numbers give other bits")
    parser.add_argument("--compile", help="as train.compile: blocks, default, …")
    parser.add_argument("--deterministic", action="store_true", help="on a GPU: expect the same bits")
    parser.add_argument("--fresh", action="store_true", help="a new interpreter for every start, not a fork")
    options = parser.parse_args()
    import torch

    began, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="kill-loop-"))
    loop = KillLoop(options, folder)
    print(
        f"torch {torch.__version__}, Python {sys.version.split()[0]}, {options.device}, compile "
        f"{options.compile or 'no'}, deterministic {options.deterministic or 'default'}, seed {options.seed}; "
        f"undisturbed, {loop.steps} steps take {loop.seconds:.1f} s; killed at step … (s: while saving)",
        flush=True,
    )
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for ended in as_completed([pool.submit(loop.run, number) for number in range(options.runs)]):
            results.append(result := ended.result())
            verdict = result.trouble or (f"OTHER: {', '.join(result.other)}" if result.other else "the same")
            print(f"run {result.number:3d}: {result.starts} starts, killed at {' '.join(result.kills)}: {verdict}",
                  flush=True)  # fmt: skip
    loop.close()
    return summary(results, loop, time.monotonic() - began)


def summary(results: list[Killed], loop: KillLoop, seconds: float) -> int:
    bad = sorted(result.number for result in results if result.trouble or result.other)
    print(
        f"{len(results)} runs, {sum(len(r.kills) for r in results)} kills ({sum(r.while_saving for r in results)} "
        f"while saving, {sum(r.before_any for r in results)} before the first checkpoint), "
        f"{sum(r.starts for r in results)} starts, {seconds:.0f} s: ",
        end="",
    )
    if bad:
        print(f"NOT THE SAME: runs {', '.join(map(str, bad))}; they stay in {loop.folder}")
        return 1
    print(f"the same in all of them: {', '.join((*PARTS, 'batches') if loop.exact else ('batches',))}")
    shutil.rmtree(loop.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
