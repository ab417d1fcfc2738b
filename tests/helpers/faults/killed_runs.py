"""Runs that are killed, and what must be the same in the end."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from helpers.faults import forks
from helpers.faults.forks import TENSORS, Event

SEED = 2017  # of the random instants
STEPS = 40
Values = dict[str, Any]


def write_text(path: Path) -> None:
    draw = random.Random(1)
    path.write_text(
        " ".join(draw.choice("the cat sat on a mat and my dog ran far into the wood".split()) for _ in range(500))
    )


def small(root: Path, **changes: Any) -> Values:
    """A run of a second: dropout, a moving average, accumulation, evaluation, skipped steps. `a_b=c` changes a.b."""
    values: Values = {
        "seed": 2,
        "model": {"size": "gpt", "n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.2},
        "tokenizer": {"kind": "char"},
        "data": {"root": str(root), "train": ["text.txt"], "valid_share": 0.1, "seq_len": 32},
        "train": {
            "steps": STEPS, "rows": 4, "accumulate": 2, "threads": 1, "workers": 2, "ema": 0.9, "device": "cpu",
            "spike": 1.5,
        },
        "optimizer": {"rate": 0.1},
        "schedule": {"kind": "linear", "warmup": 4, "final": 0.7},
        "evaluate": {"every": 8, "log": 1, "samples": 0},
        "checkpoint": {"every": 5, "keep": 2},
    }  # fmt: skip
    for name, value in changes.items():
        table, _, key = name.partition("_")
        if key:
            values.setdefault(table, {})[key] = value
        else:
            values[table] = value
    return values


def ragged(root: Path, **changes: Any) -> Values:
    """The same, but batches of two shapes: short and long sentences and their labels."""
    draw = random.Random(2)
    rows = [" ".join(draw.choices("the cat sat on a mat".split(), k=k)) for k in (3, 9) for _ in range(40)]
    (root / "table.tsv").write_text("text\tlabel\n" + "".join(f"{row}\t{draw.choice('ab')}\n" for row in rows))
    model = {"size": "bert-base", "n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.2}
    data = {"root": str(root), "train": ["table.tsv"], "valid_share": 0.1, "seq_len": 32}
    changes = {"tokenizer": {"kind": "wordpiece"}, "objective": {"kind": "classify"}, "train_tokens": 256, **changes}
    return small(root, **{"model": model, "data": data, "train_rows": 8, "train_spike": 0.0, **changes})


# --- what must be the same -------------------------------------------------------------------------------------------


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checkpoint_folders(out: Path) -> list[Path]:
    return sorted((out / "run" / "checkpoints").glob("step-*"))


def fingerprints(out: Path) -> dict[str, Any]:
    """SHA-256 of all that a run leaves; of state.json everything but the seconds."""
    last = checkpoint_folders(out)[-1]
    found: dict[str, Any] = {name: sha(last / f"{name}.safetensors") for name in TENSORS if _has(last, name)}
    for name in ("model.safetensors", "config.json", "tokenizer.json", "recipe.toml"):
        found[name] = sha(out / name) if (out / name).exists() else None
    state = json.loads((last / "state.json").read_text())
    del state["seconds"]
    found["state"] = state
    found["checkpoints"] = [path.name for path in checkpoint_folders(out)]
    found["beside"] = sorted(path.name for path in out.iterdir())  # nothing half written stays
    return found


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.safetensors").exists()


def steps_in(record: Path) -> list[Event]:
    """What every step saw and found, in the order of their being taken, those that were lost included."""
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def same_steps(record: Path, reference: Path) -> None:
    """Every step, also one that was lost and taken again, had the batch, rate, loss and gradient of the reference; none
    is missing, and each follows the one before it, or an earlier one after a restart."""
    wanted = {step["step"]: step for step in steps_in(reference)}
    taken = steps_in(record)
    for step in taken:
        assert step == wanted[step["step"]]
    assert {step["step"] for step in taken} == set(wanted) == set(range(len(wanted)))
    for one, following in pairwise(taken):
        assert following["step"] <= one["step"] + 1, "a step was left out"


# --- the tests' side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it told before."""

    signal: int
    exit: int
    events: list[Event] = field(repr=False)

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def error(self) -> str:
        return "".join(f"{event['kind']}: {event['text']}" for event in self.of("error"))

    @property
    def notes(self) -> str:
        return "\n".join(event["text"] for event in self.of("note"))


class Starter:
    """Starts runs in processes of their own, one at a time."""

    def __init__(self, cache: Path) -> None:
        environment = {
            **os.environ, "CUTAWAY_CACHE": str(cache), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # which no fork suffers from
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, forks.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def begin(self, job: str, **request: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps({"job": job, **request}, default=str), file=self.process.stdin, flush=True)

    def end(self) -> Ended:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the starter ended"
        return Ended(**json.loads(line))

    def run(self, job: str, **request: Any) -> Ended:
        self.begin(job, **request)
        return self.end()

    def train(self, recipe: Values, out: Path, *, resume: bool = False, **more: Any) -> Ended:
        """One start of a run. `record`: a file for what each step sees; `kill`: when it dies."""
        return self.run("train", recipe=recipe, out=out, resume=resume, **more)

    def to_the_end(self, recipe: Values, out: Path, **more: Any) -> Ended:
        """Goes on with a run that was killed; where it left no checkpoint, it starts at step 0 and says so."""
        anew = not checkpoint_folders(out)
        ended = self.train(recipe, out, resume=True, **more)
        assert (ended.signal, ended.exit) == (0, 0), ended.error
        assert ("there was no checkpoint yet: the run starts at step 0" in ended.notes) == anew
        return ended

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass(frozen=True)
class Reference:
    """The run that nobody disturbed."""

    recipe: Values
    out: Path
    record: Path
    calls: list[list[str]]  # of each save: the calls that reached the disk
    prints: dict[str, Any]


def undisturbed(starter: Starter, folder: Path, recipe: Values, **more: Any) -> Reference:
    out, record, calls = folder / "reference", folder / "reference.jsonl", folder / "calls.jsonl"
    ended = starter.train(recipe, out, record=record, calls=calls, **more)
    assert (ended.signal, ended.exit) == (0, 0), ended.error
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    return Reference(recipe, out, record, lines, fingerprints(out))


def kill_at_random(
    starter: Starter, recipe: Values, folder: Path, *names: Any, first: int = 0, last: int = STEPS, left: int = 0
) -> tuple[Path, Path]:
    """A run that was killed a random while after a random step, or after its start, with so many steps left to take;
    where it is, and its record."""
    for attempt, draw in enumerate(draws(SEED, *names)):
        out, record = folder / f"out-{attempt}", folder / f"steps-{attempt}.jsonl"
        kill = {"after": draw.randint(first, last), "seconds": draw.random() * 0.05}
        ended = starter.train(recipe, out, record=record, kill=kill)
        if was_in_the_middle(ended, out) and len(steps_in(record)) <= STEPS - left:
            print(f"seed {SEED}, {names}: killed {kill}, having {[path.name for path in checkpoint_folders(out)]}")
            return out, record
    raise AssertionError(f"seed {SEED}, {names}: always done before it was killed")


def was_in_the_middle(ended: Ended, out: Path) -> bool:
    """Killed, before the run had ended and its model folder was whole."""
    return ended.killed and not ended.of("end") and not (out / "run" / "done.json").exists()


def draws(*names: Any) -> Iterator[random.Random]:
    """Random numbers that these names fix, new ones for each try."""
    for attempt in range(8):
        yield random.Random(" ".join(map(str, (*names, attempt))))


def may_mount() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    command = ["unshare", *(["-m"] if os.geteuid() == 0 else ["-rm"]), "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except OSError:
        return False
