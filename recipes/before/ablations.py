"""What each part of the Transformer buys: the translator of Multi30k, with one thing changed at a time.

    python recipes/before/ablations.py run build/ablations --jobs 3      trains what is not there yet
    python recipes/before/ablations.py table build/ablations             BLEU with intervals

Every variant has the same pairs, tokens, steps and rate as recipes/multi30k-en-de.toml; only `CHANGES` differ.
"""

import argparse
import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RECIPE = Path("recipes/multi30k-en-de.toml")
TEST = "multi30k/test_2016_flickr"
WHOLE = "as it is"
CHANGES: dict[str, list[str]] = {
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
    "layers: 6": ["model.n_encoder_layers=6", "model.n_decoder_layers=6"],
    "norm: post": ["model.wiring=post_norm"],
    "norm: post, 6 layers": ["model.wiring=post_norm", "model.n_encoder_layers=6", "model.n_decoder_layers=6"],
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


def run(out: Path, root: str, jobs: int, only: list[str], more: list[str]) -> None:
    """Each variant in a process of its own; what is done already is left alone."""

    def start(name: str) -> None:
        folder = out / name.replace(": ", "-").replace(", ", "-").replace(" ", "-")
        if (folder / "ablation.json").exists():
            return
        command = [sys.executable, __file__, "one", str(folder), "--name", name, "--root", root]
        subprocess.run([*command, *(f"--set={change}" for change in more)], check=True)
        print("done:", name, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start, only or CHANGES))


def table(out: Path, root: str) -> None:
    from sacrebleu.metrics.bleu import BLEU

    with gzip.open(f"{root}/{TEST}.de.gz", "rt", encoding="utf-8") as file:
        wanted = file.read().splitlines()
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/ablation.json"))]
    found.sort(key=lambda facts: list(CHANGES).index(facts["name"]))
    metric = BLEU()
    print("| | BLEU | validation loss | parameters |\n|---|---|---|---|")
    for facts in found:
        score = metric.corpus_score(facts["said"], [wanted], n_bootstrap=1000)
        low, high = score._mean - score._ci, score._mean + score._ci
        print(f"| {facts['name']} | {score.score:.1f} ({low:.1f} … {high:.1f}) | {facts['loss']:.3f} "
              f"| {facts['parameters'] / 1e6:.1f} M |")  # fmt: skip
    print(f"\n{metric.get_signature()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "one", "table"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--root", default="../shared/data")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--only", nargs="*", default=[], choices=CHANGES, help="these alone")
    parser.add_argument("--set", action="append", default=[], dest="more", help="for all: --set train.steps=100")
    parser.add_argument("--name", choices=CHANGES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "one":
        one(given.name, given.out, given.root, given.more)
    elif given.what == "run":
        run(given.out, given.root, given.jobs, given.only, given.more)
    else:
        table(given.out, given.root)


if __name__ == "__main__":
    main()
