"""What each part of the Transformer buys: the translator of Multi30k, with one thing changed at a time.

    python recipes/before/ablations.py run build/ablations --of parts --jobs 3      trains what is not there yet
    python recipes/before/ablations.py run build/ablations --of norms --jobs 2      smaller: an hour of one core
    python recipes/before/ablations.py table build/ablations                        BLEU with intervals
    python recipes/before/ablations.py pictures build/ablations --into docs/before

Every variant has the same pairs, tokens and rate as recipes/multi30k-en-de.toml; only `CHANGES` differ.
"""

import argparse
import gzip
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
WIRINGS = {"norm before each part": "pre_norm", "norm behind (2017)": "post_norm"}
NORMS: dict[str, list[str]] = {
    f"{name}, {n} layers": [
        *SMALL, f"model.wiring={wiring}", f"model.n_encoder_layers={n}", f"model.n_decoder_layers={n}",
    ]
    for name, wiring in WIRINGS.items()
    for n in (2, 4, 8)
}  # fmt: skip
CHANGES = PARTS | NORMS
GROUPS = {"parts": PARTS, "norms": NORMS}
PICTURES: dict[str, tuple[str, dict[str, dict[int, str]]]] = {
    "heads.svg": ("heads", {"4 + 4 layers": {n: WHOLE if n == 4 else f"heads: {n}" for n in (1, 2, 4, 8, 16)}}),
    "norms.svg": ("layers on each side", {name: {n: f"{name}, {n} layers" for n in (2, 4, 8)} for name in WIRINGS}),
}


def one(name: str, out: Path, root: str, more: list[str]) -> None:
    """Trains a variant, and translates the test with it."""
    import cutaway
    from cutaway.decoding.translate import translate_all
    from cutaway.training.recipe import read_recipe
    from cutaway.training.train import train

    recipe = read_recipe(RECIPE, [f"data.root={root}", "checkpoint.every=1000000", *CHANGES[name], *more])
    outcome = train(recipe, out)
    model: Any = cutaway.load(out)
    model = model.to(_device())
    with gzip.open(f"{root}/{TEST}.en.gz", "rt", encoding="utf-8") as file:
        texts = file.read().splitlines()
    said = translate_all(model, cutaway.load_tokenizer(out), texts, beam=4)
    facts = {"name": name, "loss": outcome.scores["loss"], "seconds": outcome.seconds, "said": said,
             "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
    (out / "ablation.json").write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def run(out: Path, root: str, jobs: int, names: Iterable[str], more: list[str]) -> None:
    """Each variant in a process of its own; what is done already is left alone."""

    def start(name: str) -> None:
        folder = out / re.sub(r"\W+", "-", name)
        if (folder / "ablation.json").exists():
            return
        command = [sys.executable, __file__, "one", str(folder), "--name", name, "--root", root]
        subprocess.run([*command, *(f"--set={change}" for change in more)], check=True)
        print("done:", name, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start, names))


def scored(out: Path, root: str) -> tuple[dict[str, dict[str, Any]], str]:
    """What is known of each variant that is done, with its BLEU and its interval, in the order of CHANGES; and the
    signature of BLEU."""
    from sacrebleu.metrics.bleu import BLEU

    with gzip.open(f"{root}/{TEST}.de.gz", "rt", encoding="utf-8") as file:
        wanted = file.read().splitlines()
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/ablation.json"))]
    found.sort(key=lambda facts: list(CHANGES).index(facts["name"]))
    metric = BLEU()
    for facts in found:
        score = metric.corpus_score(facts["said"], [wanted], n_bootstrap=1000)
        facts |= {"bleu": score.score, "low": score._mean - score._ci, "high": score._mean + score._ci}
    return {facts["name"]: facts for facts in found}, str(metric.get_signature())


def table(out: Path, root: str) -> None:
    found, signature = scored(out, root)
    print("| | BLEU | validation loss | parameters |\n|---|---|---|---|")
    for name, its in found.items():
        print(f"| {name} | {its['bleu']:.1f} ({its['low']:.1f} … {its['high']:.1f}) | {its['loss']:.3f} "
              f"| {its['parameters'] / 1e6:.1f} M |")  # fmt: skip
    print(f"\n{signature}")


def pictures(out: Path, root: str, into: Path) -> None:
    """BLEU by heads, and by layers with the norm before and behind each part."""
    from cutaway.inside.pictures import Lines

    found, _ = scored(out, root)
    for file, (x_name, lines) in PICTURES.items():
        x = sorted({n for line in lines.values() for n in line})
        its = {name: [found.get(line.get(n, ""), {}) for n in x] for name, line in lines.items()}
        values = {
            name: [[facts.get(key, math.nan) for facts in row] for key in ("bleu", "low", "high")]
            for name, row in its.items()
        }
        Lines(
            x, {name: bleu for name, (bleu, _, _) in values.items()},
            bands={name: (low, high) for name, (_, low, high) in values.items()},
            title=f"BLEU by {x_name}, with 95 % intervals", x_name=x_name, y_name="BLEU", log_x=x_name == "heads",
        ).save(into / file)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "one", "table", "pictures"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", default="../shared/data")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--of", choices=GROUPS, default="parts", help="which variants")
    parser.add_argument("--only", nargs="*", default=[], choices=CHANGES, help="these alone")
    parser.add_argument("--set", action="append", default=[], dest="more", help="for all: --set train.steps=100")
    parser.add_argument("--into", type=Path, default=Path("."), help="the folder for pictures")
    parser.add_argument("--name", choices=CHANGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "one":
        one(given.name, given.out, given.root, given.more)
    elif given.what == "run":
        run(given.out, given.root, given.jobs, given.only or GROUPS[given.of], given.more)
    elif given.what == "table":
        table(given.out, given.root)
    else:
        pictures(given.out, given.root, given.into)


if __name__ == "__main__":
    main()
