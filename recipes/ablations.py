"""What each part of the Transformer buys: the translator of Multi30k, with one thing changed at a time.

    python recipes/ablations.py run build/ablations --of parts --jobs 3      trains what is not there yet
    python recipes/ablations.py run build/ablations --of norms --jobs 2      smaller: an hour of one core
    python recipes/ablations.py score build/ablations                        into docs/before/ablations.json
    python recipes/ablations.py show                                         tables, and pictures beside them

Every variant has the same pairs, tokens and rate as recipes/multi30k-en-de.toml; only `CHANGES` differ.
"""

import argparse
import gzip
import json
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from side_by_side import Job, run, trained

RECIPE = Path("recipes/multi30k-en-de.toml")
TEST = "multi30k/test_2016_flickr"
WHOLE = "as it is"
PARTS: dict[str, list[str]] = {
    WHOLE: [],
    "positions: learned": ["model.positions=learned"],
    "positions: rotary": ["model.positions=rotary"],
    "positions: none": ["model.positions=none"],
    "heads: 1": ["model.n_heads=1"],
    "heads: 2": ["model.n_heads=2"],
    "heads: 8": ["model.n_heads=8"],
    "heads: 16": ["model.n_heads=16"],
    "layers: 1": ["model.n_encoder_layers=1", "model.n_decoder_layers=1"],
    "layers: 2": ["model.n_encoder_layers=2", "model.n_decoder_layers=2"],
}
# Narrow and brief: some minutes of one core. An average over 1,000 steps would reach back to the first weights.
SMALL = [
    "model.d_model=128", "model.d_ff=256", "model.dropout=0.1", "schedule.warmup=200", "evaluate.every=400",
    "train.steps=800", "train.tokens=4096", "train.ema=0.99",
]  # fmt: skip
DEPTHS = (2, 4, 8)
WIRINGS = {"norm before each part": "pre_norm", "norm behind (2017)": "post_norm"}
NORMS: dict[str, list[str]] = {
    f"{name}, {n} layers": [
        *SMALL, f"model.wiring={wiring}", f"model.n_encoder_layers={n}", f"model.n_decoder_layers={n}",
    ]
    for name, wiring in WIRINGS.items()
    for n in DEPTHS
}  # fmt: skip
CHANGES = PARTS | NORMS
GROUPS = {"parts": PARTS, "norms": NORMS}
FACTS = Path("docs/before/ablations.json")
DONE = "ablation.json"


def one(name: str, out: Path, root: str, more: list[str]) -> None:
    """Trains a variant, and translates the test with it."""
    import cutaway
    from cutaway.decoding.translate_sentences import translate_all
    from cutaway.training.recipe_file import read_recipe

    recipe = read_recipe(RECIPE, [f"data.root={root}", "checkpoint.every=1000000", *CHANGES[name], *more])
    outcome = trained(recipe, out)
    model: Any = cutaway.load(out)
    model = model.to(_device())
    with gzip.open(f"{root}/{TEST}.en.gz", "rt", encoding="utf-8") as file:
        texts = file.read().splitlines()
    said = translate_all(model, cutaway.load_tokenizer(out), texts, beam=4)
    facts = {"name": name, "loss": outcome.scores["loss"], "seconds": outcome.seconds, "said": said,
             "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
    (out / DONE).write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def jobs(out: Path, root: str, names: Iterable[str], more: list[str]) -> list[Job]:
    folders = {name: out / re.sub(r"\W+", "-", name) for name in names}
    changes = [f"--set={change}" for change in more]
    return [
        Job(folder, DONE, [__file__, "one", str(folder), "--name", name, "--root", root, *changes])
        for name, folder in folders.items()
    ]


def score(out: Path, root: str) -> None:
    """BLEU with its 95 % interval of every variant that is done; what the file says of the others stays."""
    from sacrebleu.metrics.bleu import BLEU

    with gzip.open(f"{root}/{TEST}.de.gz", "rt", encoding="utf-8") as file:
        wanted = file.read().splitlines()
    facts, metric = json.loads(FACTS.read_text(encoding="utf-8")), BLEU()
    for path in out.glob(f"*/{DONE}"):
        done = json.loads(path.read_text(encoding="utf-8"))
        bleu = metric.corpus_score(done["said"], [wanted], n_bootstrap=1000)
        numbers = {
            "bleu": bleu.score,
            "low": bleu._mean - bleu._ci,
            "high": bleu._mean + bleu._ci,
            "loss": done["loss"],
        }
        facts[done["name"]] = {name: round(value, 3) for name, value in numbers.items()}
        facts[done["name"]]["parameters"] = done["parameters"]
    lines = [f" {json.dumps(name)}: {json.dumps(facts[name])}" for name in CHANGES if name in facts]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(metric.get_signature())


def show() -> None:
    """Of each group a table; of the parts a dot for each, of the norms a line by the number of layers."""
    from cutaway.pictures import Dots, Lines

    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    for group in GROUPS.values():
        print("| | BLEU | validation loss | parameters |\n|---|---|---|---|")
        for name, its in ((name, facts[name]) for name in group if name in facts):
            print(f"| {name} | {its['bleu']:.1f} ({its['low']:.1f} … {its['high']:.1f}) | {its['loss']:.3f} "
                  f"| {its['parameters'] / 1e6:.1f} M |")  # fmt: skip
        print()

    def numbers(names: Collection[str]) -> list[list[float]]:
        return [[facts.get(name, {}).get(key, math.nan) for name in names] for key in ("bleu", "low", "high")]

    bleu, *interval = numbers(PARTS)
    Dots(
        list(PARTS), {"BLEU": bleu}, {"BLEU": interval}, level=bleu[0],
        title="What each part buys: one changed at a time", x_name="BLEU, with 95 % intervals",
    ).save(FACTS.parent / "parts.svg")  # fmt: skip
    lines = {name: numbers([f"{name}, {n} layers" for n in DEPTHS]) for name in WIRINGS}
    Lines(
        DEPTHS, {name: bleu for name, (bleu, *_) in lines.items()}, {name: each[1:] for name, each in lines.items()},
        title="Norm before or behind, by depth", x_name="layers on each side", y_name="BLEU", log_x=True,
    ).save(FACTS.parent / "norms.svg")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "one", "score", "show"])
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/ablations"))
    parser.add_argument("--root", default="../shared/data")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--of", choices=GROUPS, default="parts", help="which variants")
    parser.add_argument("--only", nargs="*", default=[], choices=CHANGES, help="these alone")
    parser.add_argument("--set", action="append", default=[], dest="more", help="for all: --set train.steps=100")
    parser.add_argument("--name", choices=CHANGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "one":
        one(given.name, given.out, given.root, given.more)
    elif given.what == "run":
        run(jobs(given.out, given.root, given.only or GROUPS[given.of], given.more), given.jobs)
    elif given.what == "score":
        score(given.out, given.root)
    else:
        show()


if __name__ == "__main__":
    main()
