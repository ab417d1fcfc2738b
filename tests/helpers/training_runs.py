"""Runs of training, and comparisons of their weights."""

from pathlib import Path
from typing import Any

import torch

from cutaway.model.model import Model
from cutaway.training.recipe import Recipe
from cutaway.training.train import train
from cutaway.training.trainer import Outcome

Events = list[dict[str, Any]]


def run(recipe: Recipe, out: Path) -> tuple[Outcome, Events]:
    events: Events = []
    return train(recipe, out, listeners=[events.append]), events


def told(events: Events, kind: str) -> Events:
    """The events of a kind, without what a clock says."""
    hidden = ("seconds", "tokens_per_second", "share_of_peak")
    return [{k: v for k, v in e.items() if k not in hidden} for e in events if e["event"] == kind]


def same_weights(a: Model, b: Model) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
