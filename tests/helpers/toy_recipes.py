"""Toy files and tiny recipes for the training room, and gradients to compare."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from helpers.tiny_models import tiny
from torch import Tensor

from cutaway.model.model import Model
from cutaway.objectives import Objective, as_tensors
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import recipe_from

WORDS = "the a cat dog bird sat ran flew on under over mat house tree big small red old and was it".split()
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"size": "gpt2", "n_layers": 1},
    "bert": {"size": "bert-tiny", "n_layers": 1},
    "transformer": {"size": "transformer-tiny", "n_encoder_layers": 1, "n_decoder_layers": 1},
    "vit": {"size": "vit-ti-16", "patch_size": 4, "n_layers": 1},
}
TEXT, TABLE = {"train": ["text.txt"], "valid_share": 0.1}, {"train": ["table.tsv"], "valid_share": 0.2}
KINDS: dict[str, dict[str, Any]] = {
    "next_token": {"model": SIZES["gpt2"], "tokenizer": {"kind": "char"}, "data": TEXT},
    "lines": {"model": SIZES["gpt2"], "tokenizer": {"kind": "word"}, "data": {**TEXT, "split": "line"}},
    "masked": {"model": SIZES["bert"], "data": TEXT},
    "pretrain": {"model": SIZES["bert"], "data": {**TEXT, "split": "line"}},
    "spans": {"model": SIZES["transformer"], "tokenizer": {"kind": "word"}, "data": TEXT},
    "translate": {
        "model": SIZES["transformer"],
        "tokenizer": {"kind": "word"},
        "data": {"train": ["pairs.en", "pairs.de"], "format": "parallel", "header": ["en", "de"], "valid_share": 0.1},
    },
    "classify": {"model": SIZES["bert"], "data": TABLE},
    "pair": {"model": SIZES["bert"], "data": {**TABLE, "second": "second"}, "objective": {"kind": "classify"}},
    "regress": {"model": SIZES["bert"], "data": {**TABLE, "label": "score"}},
    "tag": {"model": SIZES["bert"], "data": {**TABLE, "label": "tags"}},
    "images": {"model": SIZES["vit"], "data": {"train": ["pictures.npz"], "valid_share": 0.2}},
}


def write_files(folder: Path, seed: int = 0) -> None:
    """Random words as running text, as pairs and as a table, and random pictures."""
    random = Random(seed)

    def sentence(shortest: int = 2, longest: int = 9) -> str:
        return " ".join(random.choices(WORDS, k=random.randint(shortest, longest)))

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("".join(f"{sentence()} . {sentence()} !\n" for _ in range(120)))
    for side in ("en", "de"):
        (folder / f"pairs.{side}").write_text("".join(f"{sentence(1, 14)}\n" for _ in range(80)))
    rows = ["text\tsecond\tlabel\tscore\ttags"]
    for _ in range(60):
        text = sentence()
        tags = " ".join(random.choice("xy") for _ in text.split())
        rows.append(f"{text}\t{sentence()}\t{random.choice('abc')}\t{random.random():.3f}\t{tags}")
    (folder / "table.tsv").write_text("\n".join(rows) + "\n")
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (50, 8, 8), dtype=np.uint8)
    np.savez(folder / "pictures.npz", images=images, labels=np.arange(50) % 4)


def values(kind: str, folder: Path, **tables: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values: a tiny model, four steps, everything measured and saved; `tables` change them."""
    if not (folder / "text.txt").exists():
        write_files(folder)
    recipe: dict[str, Any] = {
        "seed": 1,
        "tokenizer": {"kind": "wordpiece", "vocab_size": 120},
        "objective": {"kind": {"lines": "next_token"}.get(kind, kind)},
        "train": {"steps": 4, "tokens": 256, "threads": 1},
        "evaluate": {"every": 2, "log": 1},
        "checkpoint": {"every": 2},
        **deepcopy(KINDS[kind]),
    }
    recipe["model"] |= {"d_model": 16, "n_heads": 2, "d_ff": 32}
    recipe["data"] |= {"root": str(folder), "seq_len": 24}
    if kind == "images":
        del recipe["tokenizer"]
        recipe["train"]["rows"] = 8
    for table, changes in tables.items():
        recipe[table] = {**recipe.get(table, {}), **changes} if isinstance(changes, dict) else changes
    return recipe


def toy(kind: str, folder: Path, **tables: dict[str, Any]) -> Recipe:
    """The recipe that these values make."""
    return recipe_from(values(kind, folder, **tables))


@cache
def still(name: str, dtype: torch.dtype = torch.float64) -> Model:
    """A tiny model that no test changes: building one takes longer than asking it."""
    return tiny(name, dtype=dtype)


def gradient(model: Model, loss: Tensor) -> Tensor:
    """The gradient of all parameters as one vector; 0 where there is none."""
    model.zero_grad()
    loss.backward()
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


def loss_and_gradient(objective: Objective, model: Model, prepared: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The sum of all terms, unscaled, and its gradient."""
    loss = torch.stack(list(objective.losses(model, as_tensors(prepared)).values())).sum()
    return loss.detach(), gradient(model, loss)


def near(ours: Tensor, theirs: Tensor, tolerance: float) -> bool:
    """Within the tolerance, relative to the largest."""
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max())
