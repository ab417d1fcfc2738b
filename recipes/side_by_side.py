"""Trainings side by side, each in a process of its own: what is done is left alone, what was stopped goes on."""

import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cutaway.training.recipe import Recipe
    from cutaway.training.trainer import Outcome


class Job(NamedTuple):
    """`words` behind python train into the folder, and write `done` there at their end."""

    folder: Path
    done: str
    words: list[str]


def run(jobs: Iterable[Job], at_once: int) -> None:
    """What a job prints lies beside its folder; after one that fails no other begins."""
    failed = Event()

    def begin(job: Job) -> None:
        if failed.is_set() or (job.folder / job.done).exists():
            return
        log = job.folder.parent / f"{job.folder.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            ended = subprocess.run([sys.executable, *job.words], stdout=file, stderr=subprocess.STDOUT)
        if ended.returncode:
            failed.set()
            raise SystemExit(f"{job.folder.name} ended with {ended.returncode}: {log} says why; run it again to go on")
        print("done:", job.folder.name, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(begin, jobs))


def trained(recipe: "Recipe", out: Path) -> "Outcome":
    """To its end: a run that was stopped before goes on, and one that is stopped now is nothing to be scored."""
    from cutaway.training.train import train

    outcome = train(recipe, out, resume=(out / "run" / "log.jsonl").exists())
    if not outcome.finished:
        raise SystemExit(outcome.exit_code or 1)
    return outcome
