"""Induction heads appear while a model learns, and with them the loss of what was said before falls.

    cutaway train recipes/books.toml --set train.steps=2000 --set checkpoint.every=50 --set checkpoint.keep=40 \\
        --out build/rise
    python bench/rise.py build/rise --out rise.json --picture rise.svg

Every checkpoint reads the same random tokens twice. A line for each: the best score of a head of each kind (0 … 1),
and the nats that a token costs the first and the second time. Beyond the words of a book nothing taught it this.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import cutaway
from cutaway.inside.induction import over_training, repeated
from cutaway.inside.pictures import Lines

LEAST = 300  # special tokens and single bytes come first: books hardly have them, and nothing is known of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    model = cutaway.load(asked.run)
    ids = repeated(model.config.to_dict()["vocab_size"], rows=asked.rows, length=asked.length, least=LEAST)
    found = []
    for step, scores in over_training(model, asked.run, ids):
        kinds = {name: getattr(scores, name).best(1)[0] for name in ("induction", "previous", "duplicate")}
        found.append({"step": step, **kinds, "first": scores.loss[0], "second": scores.loss[1]})
        print(json.dumps(found[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.picture:
        picture_of(found).save(asked.picture)


def picture_of(found: list[dict[str, Any]]) -> Lines:
    told = [1 - it["second"] / it["first"] for it in found]
    lines = {"best induction head": [it["induction"][1] for it in found],
             "best previous-token head": [it["previous"][1] for it in found],
             "told by the first time": told}  # fmt: skip
    title = "Induction heads appear, and what was said before is told"
    return Lines([it["step"] for it in found], lines, title=title, x_name="step", y_name="share")


if __name__ == "__main__":
    main()
