"""Induction heads appear while a model learns, and with them the cost of what was said before falls.

    python bench/rise.py text build/stdlib.txt                    Python's own library, as text
    cutaway train recipes/rise.toml --out build/rise              half an hour on one core, a checkpoint every 50 steps
    python bench/rise.py look build/rise --out rise.json --picture rise.svg

Every checkpoint reads the same random tokens twice. A line for each: the best head of each kind (its score is 0 … 1),
and the nats that a token costs the first and the second time. At last the heads that the end's scores name are taken
out, and as many others instead: whether they do it is not to be seen from where they look.
"""

import argparse
import json
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway import Ablate, Place
from cutaway.inside.induction import Induction, induction, over_training, repeated
from cutaway.inside.pictures import Lines

LEAST = 300  # special tokens and single bytes come first: a text hardly has them, and nothing is known of them
KINDS = ("induction", "previous", "duplicate")


def text(out: Path) -> None:
    """The files of the standard library, without its tests, parted by form feeds."""
    library = Path(sysconfig.get_path("stdlib"))
    own = (path for path in sorted(library.rglob("*.py")) if not {"site-packages", "test", "tests"} & {*path.parts})
    files = []
    for path in own:
        try:
            files.append(path.read_text(encoding="utf-8").replace("\f", ""))
        except UnicodeDecodeError:  # test material of other encodings
            continue
    whole = "\f".join(one for one in files if one.strip())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(whole, encoding="utf-8")
    print(f"{out}: {len(files)} files, {len(whole):,} characters")


def look(run: Path, rows: int, length: int, out: Path | None, picture: Path | None) -> None:
    model = cutaway.load(run)
    ids = repeated(model.config.to_dict()["vocab_size"], rows=rows, length=length, least=LEAST)
    found, scores = [], None
    for step, scores in over_training(model, run, ids):
        best = {name: getattr(scores, name).best(1)[0] for name in KINDS}
        found.append({"step": step, **best, "first": scores.loss[0], "second": scores.loss[1]})
        print(json.dumps(found[-1]), flush=True)
    assert scores is not None  # a run without checkpoints is refused
    taken = without(model, ids, scores)
    for name, (first, second) in taken.items():
        print(f"{name}: {first:.2f} nats the first time, {second:.2f} the second")
    if out:
        out.write_text(json.dumps({"steps": found, "without": taken}, indent=1) + "\n", encoding="utf-8")
    if picture:
        picture_of(found).save(picture)


def without(model: Any, ids: torch.Tensor, scores: Induction, n: int = 2) -> dict[str, tuple[float, float]]:
    """What the tokens cost the first and the second time, with and without some heads."""
    looking = [head for head, _ in scores.induction.best(n)]
    before = [head for head, _ in scores.previous.best(1)]
    others = [head for head in scores.induction.scores if head not in {*looking, *before}]
    draw = torch.randperm(len(others), generator=torch.Generator().manual_seed(0))[:n]
    groups = {
        "with all heads": [],
        f"without {', '.join(looking)} (induction)": looking,
        f"without {', '.join(before)} (previous token)": before,
        f"without {', '.join(random := sorted(others[i] for i in draw))} (drawn)": random,
    }
    return {name: _loss(model, ids, heads) for name, heads in groups.items()}


def _loss(model: Any, ids: torch.Tensor, heads: Sequence[str]) -> tuple[float, float]:
    with cutaway.intervene(model, [Ablate(Place.of(head)) for head in heads]):
        return induction(model, ids).loss


def picture_of(found: list[dict[str, Any]]) -> Lines:
    lines = {"looks at the one before": [it["previous"][1] for it in found],
             "induction head": [it["induction"][1] for it in found],
             "cost saved the second time": [1 - it["second"] / it["first"] for it in found]}  # fmt: skip
    title = "The best head of each kind, and what saying it twice saves"
    return Lines([it["step"] for it in found], lines, title=title, x_name="step", y_name="share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = parser.add_subparsers(dest="does", required=True)
    does.add_parser("text").add_argument("out", type=Path)
    looks = does.add_parser("look")
    looks.add_argument("run", type=Path)
    looks.add_argument("--rows", type=int, default=32)
    looks.add_argument("--length", type=int, default=50)
    looks.add_argument("--out", type=Path)
    looks.add_argument("--picture", type=Path)
    asked = vars(parser.parse_args())
    {"text": text, "look": look}[asked.pop("does")](**asked)


if __name__ == "__main__":
    main()
