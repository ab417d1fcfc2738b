"""How `digits` does on digits that were moved, turned, shrunk or inverted, and which it takes for which.

    python recipes/harder_digits.py digits ../shared/data/mnist

Every fifth picture of MNIST's test is changed; the confusions are those of all pictures as they are.
"""

import sys
from collections import Counter
from collections.abc import Callable
from math import cos, radians, sin
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import cutaway
from cutaway.data.images import idx_images
from cutaway.model.model import Model

Change = Callable[[Tensor], Tensor]
EACH = 5
AT_ONCE = 500


def moved(right: int, down: int) -> Change:
    return lambda x: F.pad(x, (right, -right, down, -down))


def drawn_anew(degrees: float = 0.0, size: float = 1.0) -> Change:
    """Turned to the left and made smaller, about the middle; what comes in from outside is black."""
    a, b = cos(radians(degrees)) / size, sin(radians(degrees)) / size

    def change(x: Tensor) -> Tensor:
        places = F.affine_grid(torch.tensor([[[a, -b, 0.0], [b, a, 0.0]]]).expand(len(x), 2, 3), x.shape, False)
        return F.grid_sample(x, places, align_corners=False)

    return change


def noisy(deviation: float) -> Change:
    return lambda x: (x + deviation * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)


CHANGES: dict[str, Change] = {
    "as they are": lambda x: x,
    "moved by 2 pixels to the right and down": moved(2, 2),
    "moved by 4": moved(4, 4),
    "moved by 6": moved(6, 6),
    "turned by 15°": drawn_anew(15),
    "turned by 30°": drawn_anew(30),
    "turned by 45°": drawn_anew(45),
    "turned by 90°": drawn_anew(90),
    "upside down": drawn_anew(180),
    "two thirds of the size": drawn_anew(size=2 / 3),
    "half of the size": drawn_anew(size=1 / 2),
    "with noise of 0.3": noisy(0.3),
    "grey: a third of the brightness": lambda x: x / 3,
    "black on white": lambda x: 1 - x,
}


@torch.inference_mode()
def answers(model: Model, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest class of each picture (0 … 1), and its probability."""
    mean, std = model.config.pixel_mean[0], model.config.pixel_std[0]  # type: ignore[attr-defined]
    parts = [model((some - mean) / std).softmax(-1) for some in pictures.split(AT_ONCE)]
    sure, which = torch.cat(parts).max(-1)
    return which, sure


def main() -> None:
    model, data = cutaway.load(sys.argv[1]).eval(), Path(sys.argv[2])
    test = idx_images(data / "t10k-images-idx3-ubyte.gz", data / "t10k-labels-idx1-ubyte.gz")
    pictures, labels = torch.tensor(test.pixels).float() / 255, torch.tensor(test.labels)
    print("| pictures | right | mean probability of the answer |\n|---|---|---|")
    for name, change in CHANGES.items():
        which, sure = answers(model, change(pictures[::EACH]))
        right = (which == labels[::EACH]).float().mean().item()
        print(f"| {name} | {right:.1%} | {sure.mean():.2f} |", flush=True)
    which, sure = answers(model, pictures)
    wrong = (which != labels).nonzero()[:, 0].tolist()
    pairs = Counter((int(labels[i]), int(which[i])) for i in wrong)
    print(f"\n{len(wrong)} of {len(labels):,} wrong; true → said, times:")
    print(", ".join(f"{true} → {said} {n}" for (true, said), n in pairs.most_common()))
    print("the surest:", ", ".join(f"picture {i} ({sure[i]:.2f})" for i in sorted(wrong, key=lambda i: -sure[i])[:5]))


if __name__ == "__main__":
    main()
