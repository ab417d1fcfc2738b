"""A small Vision Transformer reads the handwritten digits that come with scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutaway.checkpoints import load
from cutaway.objectives.images import ImageLabels
from cutaway.training.datasets import prepare
from cutaway.training.recipe_file import recipe_from
from cutaway.training.train import train


@pytest.mark.long
def test_digits_are_recognised(tmp_path: Path) -> None:
    """97 % of 450 pictures that neither taught nor chose anything; the last 200 of the others choose."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    order = np.random.default_rng(9).permutation(len(digits.target))
    images, labels = (digits.images[order] * 15).astype(np.uint8), digits.target[order]
    test, rest = slice(0, 450), slice(450, None)
    np.savez(tmp_path / "digits.npz", images=images[rest], labels=labels[rest])
    recipe: dict[str, Any] = {
        "model": {"size": "vit-ti-16", "patch_size": 4, "n_layers": 3, "d_model": 64, "n_heads": 4, "d_ff": 128},
        "data": {"root": str(tmp_path), "train": ["digits.npz"], "valid_last": 200},
        "objective": {"kind": "images", "turn": 10.0, "stretch": 0.1, "cutmix": 0.5, "smoothing": 0.1},
        "train": {"steps": 600, "rows": 96, "threads": 1, "ema": 0.99},
        "optimizer": {"kind": "muon", "rate": 3e-3, "weight_decay": 0.05},
        "schedule": {"kind": "linear", "warmup": 30},
        "evaluate": {"every": 100, "metric": "accuracy"},
    }
    resolved = recipe_from(recipe)
    train(resolved, tmp_path / "out")
    model, objective = load(tmp_path / "out"), prepare(resolved, None).objective
    assert isinstance(objective, ImageLabels)
    with torch.no_grad():
        said = model(objective.numbers(torch.from_numpy(images[test])[:, None])).argmax(-1).numpy()
    accuracy = (said == labels[test]).mean()
    assert accuracy >= 0.97, accuracy
