"""What pre-training buys: a model, and the same network untrained, fine-tuned on each task of recipes/glue-*.toml.

    python recipes/untrained.py build/cloze build/cloze-untrained
    python recipes/glue.py run build/glue build/cloze build/cloze-untrained --jobs 5     what is not there yet
    python recipes/glue.py table build/glue                                              dev scores

Every start has the same recipe of a task; `--set` changes it for all. What a decoder has no use for (the pooling of an
encoder) is left out. recipes/before/fine_tuning.py goes on from here, with a GPT and an LSTM.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TASKS = {"sst2": "SST-2", "stsb": "STS-B", "cola": "CoLA", "rte": "RTE", "mrpc": "MRPC"}  # the longest first


def one(task: str, start: Path, out: Path, more: list[str]) -> None:
    """Fine-tunes on one task, and writes down what the dev set says at the end."""
    import cutaway
    from cutaway.training.recipe import read_recipe
    from cutaway.training.train import train

    recipe = read_recipe(Path(f"recipes/glue-{task}.toml"), [f"model.start={start}", *more])
    has = cutaway.load(start).config.to_dict()
    changes = {name: value for name, value in recipe.model.changes.items() if name in has}
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, changes=changes))
    outcome = train(recipe, out)
    facts = {"task": task, "start": start.name, "metric": recipe.evaluate.metric, "scores": outcome.scores,
             "seconds": outcome.seconds}  # fmt: skip
    (out / "glue.json").write_text(json.dumps(facts), encoding="utf-8")


def run(out: Path, starts: list[Path], tasks: list[str], jobs: int, more: list[str]) -> None:
    """Each in a process of its own; what is done already is left alone."""

    def begin(task: str, start: Path) -> None:
        folder = out / f"{task}-{start.name}"
        if (folder / "glue.json").exists():
            return
        command = [sys.executable, __file__, "one", str(folder), str(start), "--tasks", task]
        subprocess.run([*command, *(f"--set={change}" for change in more)], check=True)
        print("done:", folder.name, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda its: begin(*its), [(task, start) for task in tasks for start in starts]))


def table(out: Path) -> None:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/glue.json"))]
    starts = sorted({facts["start"] for facts in found}, key=lambda name: ("untrained" in name, name))
    print(f"| dev | {' | '.join(starts)} |\n|---|{'---|' * len(starts)}")
    for task, name in TASKS.items():
        its = {facts["start"]: facts for facts in found if facts["task"] == task}
        if its:
            (metric,) = {facts["metric"] for facts in its.values()}
            cells = [f"{100 * its[start]['scores'][metric]:.1f}" if start in its else "–" for start in starts]
            print(f"| {name}, {metric} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "one", "table"])
    parser.add_argument("out", type=Path)
    parser.add_argument("starts", type=Path, nargs="*", help="model folders or names")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--set", action="append", default=[], dest="more", help="for all: --set data.root=FOLDER")
    given = parser.parse_args()
    if given.what == "one":
        one(given.tasks[0], given.starts[0], given.out, given.more)
    elif given.what == "run":
        run(given.out, given.starts, given.tasks, given.jobs, given.more)
    else:
        table(given.out)


if __name__ == "__main__":
    main()
