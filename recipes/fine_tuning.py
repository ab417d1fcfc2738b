"""GPT's own ablation in small (Radford et al. 2018, table 5): pre-training, the auxiliary loss, an LSTM in its place.

    cutaway train recipes/before/small-books.toml --out build/small-books
    cutaway train recipes/before/small-books-lstm.toml --out build/small-books-lstm
    python recipes/untrained.py build/small-books build/small-books-untrained
    python recipes/fine_tuning.py rates build/fine-tuning --jobs 2      which rate suits each variant
    python recipes/fine_tuning.py run build/fine-tuning --jobs 2        every variant on every task
    python recipes/fine_tuning.py score build/fine-tuning               into docs/before/fine-tuning.json
    python recipes/fine_tuning.py show                                  the table, and the picture beside it

Each variant has the examples of recipes/glue-*.toml, in fewer steps. Of three rates each variant gets the one that
is best on a tenth of two training sets, which is held out for that; the dev sets choose nothing.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

from glue import DONE, TASKS, job
from side_by_side import Job, run

AUXILIARY = "objective.auxiliary=0.5"
VARIANTS = {
    "GPT": ("small-books", [AUXILIARY]),
    "without pre-training": ("small-books-untrained", [AUXILIARY]),
    "without the auxiliary loss": ("small-books", []),
    "an LSTM in its place": ("small-books-lstm", [AUXILIARY]),
}
STEPS = {"sst2": 2105, "stsb": 1436, "cola": 1336, "rte": 390, "mrpc": 450}  # 1, 4, 5, 5 and 4 times over the examples
RATES = ("1e-4", "3e-4", "1e-3")
TRIED, TRIED_STEPS = ("cola", "stsb"), 300  # what rates are tried on
FACTS = Path("docs/before/fine-tuning.json")


def changes(steps: int, rate: str, root: str, more: list[str]) -> list[str]:
    return [
        f"data.root={root}", f"train.steps={steps}", f"schedule.warmup={steps // 10}", f"optimizer.rate={rate}",
        "optimizer.layer_decay=1.0", f"evaluate.every={steps}", f"checkpoint.every={max(steps // 4, 1)}", *more,
    ]  # fmt: skip


def folder(out: Path, *words: str) -> Path:
    return out / "-".join(words).replace(" ", "-")


def rates(out: Path, starts: Path, root: str) -> list[Job]:
    held_out = ["data.valid=[]", "data.valid_share=0.1", "train.rows=32"]
    return [
        job(task, starts / start, folder(out / "rates", task, name, rate),
            changes(TRIED_STEPS, rate, root, [*held_out, *more]))
        for task in TRIED
        for name, (start, more) in VARIANTS.items()
        for rate in RATES
    ]  # fmt: skip


def best_rates(out: Path) -> dict[str, str]:
    """Of each variant: the rate whose scores on the two tasks have the largest sum."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for name in VARIANTS:
        for rate in RATES:
            for task in TRIED:
                facts = json.loads((folder(out / "rates", task, name, rate) / DONE).read_text(encoding="utf-8"))
                found[name, rate] += facts["scores"][facts["metric"]]
            print(f"{name:28} {rate:>6} {100 * found[name, rate] / len(TRIED):6.1f}")
    return {name: max(RATES, key=lambda rate: found[name, rate]) for name in VARIANTS}


def runs(out: Path, starts: Path, root: str) -> list[Job]:
    rate = best_rates(out)
    return [
        job(task, starts / start, folder(out / "runs", task, name), changes(STEPS[task], rate[name], root, more))
        for task in TASKS
        for name, (start, more) in VARIANTS.items()
    ]


def score(out: Path) -> None:
    rate = best_rates(out)
    rows = []
    for task, title in TASKS.items():
        scores = {}
        for name in VARIANTS:
            facts = json.loads((folder(out / "runs", task, name) / DONE).read_text(encoding="utf-8"))
            scores[name] = round(100 * facts["scores"][facts["metric"]], 1)
        rows.append({"task": title, "metric": facts["metric"], "scores": scores})
    FACTS.write_text(json.dumps({"rates": rate, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def show() -> None:
    from cutaway.pictures import Dots

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
            run(rates(given.out, given.starts, given.root), given.jobs)
            print(best_rates(given.out))
        case "run":
            run(runs(given.out, given.starts, given.root), given.jobs)
        case "score":
            score(given.out)
        case "show":
            show()


if __name__ == "__main__":
    main()
