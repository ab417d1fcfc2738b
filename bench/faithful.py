"""Which attribution is most faithful? Deletion curves of every method on pictures of digits and on translations.

    python bench/faithful.py --digits FOLDER --mnist FOLDER --images 50
    python bench/faithful.py --digits FOLDER --mnist FOLDER --alone
    python bench/faithful.py --translator FOLDER --sentences FILE --to de --lines 20

Prints, for each method, the mean faithfulness (0: no better than a random order, larger: the number falls sooner) of
the questions whose answer depends on the inputs at all. --alone: how many of the first 2,000 digits are right when no
patch looks at another (docs/inside/6-what-a-vit-looks-at.md).
"""

import argparse
import gzip
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

import cutaway
from cutaway.inside import Ablate, Place, questions
from cutaway.inside.attribution.deletion_curve import deletion_curve
from cutaway.inside.attribution.result import METHODS
from cutaway.inside.question import Question
from cutaway.model.model import Model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--digits", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--translator", type=Path)
    parser.add_argument("--sentences", type=Path)
    parser.add_argument("--to")
    parser.add_argument("--lines", type=int, default=20)
    asked = parser.parse_args()
    if asked.digits and asked.alone:
        return alone(cutaway.load(asked.digits), asked.mnist)
    if asked.digits:
        model = cutaway.load(asked.digits)
        pictures = mnist(asked.mnist)[: asked.images]
        measure(questions.ask_image(model, picture) for picture in pictures)
    if asked.translator:
        model, tokenizer = cutaway.load(asked.translator), cutaway.load_tokenizer(asked.translator)
        lines = asked.sentences.read_text(encoding="utf-8").splitlines()[: asked.lines]
        measure(questions.ask_translation(model, tokenizer, line, to=asked.to) for line in lines)


def alone(model: Model, folder: Path, n: int = 2000) -> None:
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        true = np.frombuffer(file.read()[8:], np.uint8)[:n]
    places = [
        Place(f"encoder.{layer}.attention.heads", positions=slice(1, None)) for layer in range(len(model.encoder))
    ]
    for name, gone in ("as it is", []), ("no patch looks at another", places):
        with cutaway.inside.intervene(model, [Ablate(place) for place in gone]):
            said = cutaway.classify(model, list(mnist(folder)[:n]))
        right = np.mean([int(one.label) == label for one, label in zip(said, true, strict=True)])
        print(f"{name}: {right:.1%} of {n:,} digits are right")


def mnist(folder: Path) -> np.ndarray:
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        return np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 1, 28, 28)


def measure(every: Iterable[Question]) -> None:
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for n, asked in enumerate(every, 1):
        for method in METHODS:
            started = time.perf_counter()
            scores = asked.attribute(method).scores
            seconds[method] += time.perf_counter() - started
            may_go = words_of(asked) if asked.tokenizer else ink_of(asked)
            curve = deletion_curve(
                asked.model, *asked.inputs, scores=scores, metric=asked.metric, among=may_go, baseline=asked.baseline
            )
            if curve.faithfulness is not None:
                found[method].append(curve.faithfulness)
        told = (f"{method} {np.mean(values):.3f}" for method, values in found.items() if values)
        print(f"{n} questions, {len(found[method])} counted:", *told, flush=True)
    for method, values in found.items():
        if not values:
            raise SystemExit("no answer depends on what may be taken away: nothing to measure")
        error = np.std(values) / max(1, len(values) - 1) ** 0.5
        print(f"{method:22s} {np.mean(values):6.3f} ± {error:.3f}   {seconds[method] / n:6.2f} s each")


def ink_of(asked: Question) -> torch.Tensor:
    """Patches that are not black: to take the others away changes nothing, and any order that leaves them for last
    would look faithful."""
    side = asked.model.config.to_dict()["patch_size"]
    ink = asked.inputs[0] > asked.inputs[0].min()
    return torch.nn.functional.max_pool2d(ink.float(), side)[0, 0].flatten() > 0


def words_of(asked: Question) -> torch.Tensor:
    """The source's and the target's words before each output: what may be taken away."""
    plain = ~torch.cat(asked.special, dim=1)[0]
    source, target = (one.shape[1] for one in asked.inputs)
    before = torch.ones(target, target, dtype=torch.bool).tril()
    return plain & torch.cat([torch.ones(target, source, dtype=torch.bool), before], dim=1)


if __name__ == "__main__":
    main()
