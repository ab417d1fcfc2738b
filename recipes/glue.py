"""What pre-training buys: a model, and the same network untrained, fine-tuned on each task of recipes/glue-*.toml.

    python recipes/untrained.py build/cloze build/cloze-untrained
    python recipes/glue.py run build/glue build/cloze build/cloze-untrained --jobs 5     what is not there yet
    python recipes/glue.py table build/glue                                              dev scores

Every start has the same recipe of a task; `--set` changes it for all. What a decoder has no use for (the pooling of an
encoder) is left out. recipes/fine_tuning.py goes on from here, with a GPT and an LSTM.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from side_by_side import Job, run, trained

TASKS = {"sst2": "SST-2", "stsb": "STS-B", "cola": "CoLA", "rte": "RTE", "mrpc": "MRPC"}  # the longest first
DONE = "glue.json"


def one(task: str, start: Path, out: Path, more: list[str]) -> None:
    """Fine-tunes on one task, and writes down what the dev set says at the end."""
    import cutaway
    from cutaway.training.recipe_file import read_recipe

    path = Path(f"recipes/glue-{task}.toml")
    has, usual = cutaway.load(start).config.to_dict(), read_recipe(path, []).model.changes
    recipe = read_recipe(path, [f"model.start={start}", *more])
    fits = {name: value for name, value in recipe.model.changes.items() if name in has or name not in usual}
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, changes=fits))
    outcome = trained(recipe, out)
    facts = {"task": task, "start": start.name, "metric": recipe.evaluate.metric, "scores": outcome.scores,
             "seconds": outcome.seconds}  # fmt: skip
    (out / DONE).write_text(json.dumps(facts), encoding="utf-8")


def job(task: str, start: Path, out: Path, more: list[str]) -> Job:
    """The same in a process of its own."""
    words = [__file__, "one", str(out), str(start), "--tasks", task, *(f"--set={change}" for change in more)]
    return Job(out, DONE, words)


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
        wanted = [(task, start) for task in given.tasks for start in given.starts]
        run([job(task, start, given.out / f"{task}-{start.name}", given.more) for task, start in wanted], given.jobs)
    else:
        table(given.out)


if __name__ == "__main__":
    main()
