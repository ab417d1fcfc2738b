"""GPT's own ablation in small (Radford et al. 2018, table 5): pre-training, the auxiliary loss, an LSTM in its place.

    cutaway train recipes/before/small-books.toml --out build/small-books
    cutaway train recipes/before/small-books-lstm.toml --out build/small-books-lstm
    python recipes/untrained.py build/small-books build/small-books-untrained
    python recipes/before/fine_tuning.py rates build/fine-tuning --jobs 2       which rate suits each start
    python recipes/before/fine_tuning.py run build/fine-tuning --jobs 2         every variant on every task
    python recipes/before/fine_tuning.py score build/fine-tuning                into docs/before/fine-tuning.json
    python recipes/before/fine_tuning.py show                                   the table, and the picture beside it

Each variant has the examples of recipes/glue-*.toml and half of their steps. Of three rates each start gets the one
that is best on a tenth of two training sets, which is held out for that; the dev sets choose nothing.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

AUXILIARY = "objective.auxiliary=0.5"
GPT, UNTRAINED, LSTM = "small-books", "small-books-untrained", "small-books-lstm"
VARIANTS = {
    "GPT": (GPT, [AUXILIARY]),
    "without pre-training": (UNTRAINED, [AUXILIARY]),
    "without the auxiliary loss": (GPT, []),
    "an LSTM in its place": (LSTM, [AUXILIARY]),
}
TASKS = {"sst2": "SST-2", "stsb": "STS-B", "cola": "CoLA", "rte": "RTE", "mrpc": "MRPC"}  # the longest first
STEPS = {"sst2": 3000, "stsb": 2694, "cola": 1336, "rte": 390, "mrpc": 450}
RATES = ("1e-4", "3e-4", "1e-3")
TRIED = ("cola", "stsb")  # rates are tried on these
FACTS = Path("docs/before/fine-tuning.json")


class Job(NamedTuple):
    folder: Path
    start: str
    task: str
    changes: list[str]


def changes(steps: int, rate: str, more: list[str]) -> list[str]:
    return [
        f"train.steps={steps}", f"schedule.warmup={steps // 10}", f"optimizer.rate={rate}", "optimizer.layer_decay=1.0",
        f"evaluate.every={steps}", f"checkpoint.every={steps}", *more,
    ]  # fmt: skip


def rates(out: Path) -> list[Job]:
    held_out = [AUXILIARY, "data.valid=[]", "data.valid_share=0.1", "train.rows=32"]
    return [
        Job(out / "rates" / f"{task}-{start}-{rate}", start, task, changes(300, rate, held_out))
        for task in TRIED
        for start in (GPT, UNTRAINED, LSTM)
        for rate in RATES
    ]


def best_rates(out: Path) -> dict[str, str]:
    """Of each start: the rate whose scores on the two tasks have the largest sum."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for job in rates(out):
        facts = json.loads((job.folder / "glue.json").read_text(encoding="utf-8"))
        found[job.start, job.folder.name.removeprefix(f"{job.task}-{job.start}-")] += facts["scores"][facts["metric"]]
    for (start, rate), total in found.items():
        print(f"{start:24} {rate:>6} {100 * total / len(TRIED):6.1f}")
    return {start: max(RATES, key=lambda rate: found[start, rate]) for start in (GPT, UNTRAINED, LSTM)}


def variants(out: Path) -> list[Job]:
    rate = best_rates(out)
    return [
        Job(out / "runs" / f"{task}-{name.replace(' ', '-')}", start, task, changes(STEPS[task], rate[start], more))
        for task in TASKS
        for name, (start, more) in VARIANTS.items()
    ]


def run(jobs: list[Job], starts: Path, root: str, at_once: int) -> None:
    """Each in a process of its own; what is done already is left alone."""

    def begin(job: Job) -> None:
        if (job.folder / "glue.json").exists():
            return
        command = [
            sys.executable,
            "recipes/glue.py",
            "one",
            str(job.folder),
            str(starts / job.start),
            "--tasks",
            job.task,
        ]
        given = [f"--set={change}" for change in (f"data.root={root}", *job.changes)]
        log = job.folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            subprocess.run([*command, *given], check=True, stdout=file, stderr=subprocess.STDOUT)
        print("done:", job.folder.name, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(begin, jobs))


def score(out: Path) -> None:
    rate = best_rates(out)
    rows = []
    for task, title in TASKS.items():
        scores = {}
        for name in VARIANTS:
            facts = json.loads((out / "runs" / f"{task}-{name.replace(' ', '-')}" / "glue.json").read_text("utf-8"))
            scores[name] = round(100 * facts["scores"][facts["metric"]], 1)
        rows.append({"task": title, "metric": facts["metric"], "scores": scores})
    FACTS.write_text(json.dumps({"rates": rate, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def show() -> None:
    from cutaway.inside.pictures import Dots

    rows = json.loads(FACTS.read_text(encoding="utf-8"))["rows"]
    print(f"| dev | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}")
    for row in rows:
        cells = " | ".join(f"{row['scores'][name]:.1f}" for name in VARIANTS)
        print(f"| {row['task']}, {row['metric']} | {cells} |")
    Dots(
        [f"{row['task']}, {row['metric']}" for row in rows],
        {name: [row["scores"][name] for row in rows] for name in VARIANTS},
        title="Fine-tuning a small GPT: what its parts buy", x_name="score on dev, × 100",
    ).save(FACTS.with_suffix(".svg"))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["rates", "run", "score", "show"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/fine-tuning"))
    parser.add_argument("--starts", type=Path, default=Path("build"), help="the folder of the three models")
    parser.add_argument("--root", default="../shared/data", help="the folder of the data")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    given = parser.parse_args()
    match given.what:
        case "rates":
            run(rates(given.out), given.starts, given.root, given.jobs)
            print(best_rates(given.out))
        case "run":
            run(variants(given.out), given.starts, given.root, given.jobs)
        case "score":
            score(given.out)
        case "show":
            show()


if __name__ == "__main__":
    main()
