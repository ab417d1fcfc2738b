"""Saving a run and resuming it: what must be unchanged, what a checkpoint contains, and how it is restored."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.data.corpus import digest
from cutaway.errors import ConfigError, InputError
from cutaway.model.finite import not_finite
from cutaway.model.model import Model
from cutaway.training.checkpoint import Checkpoint, write_checkpoint
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.loop import Run
from cutaway.training.recipe import Recipe
from cutaway.training.run_log import plain_values

MOST_SHOWN = 5  # differences from the run that is resumed
# What may change when a run is resumed, since it changes no weight.
FREE = (
    "name",
    "about",
    "licence",
    "data.root",
    "train.workers",
    "evaluate.log",
    "evaluate.samples",
    "evaluate.prompt",
    "checkpoint.keep",
)


def depends_on(recipe: Recipe, dataset: TrainingData, model: Model, world: int) -> dict[str, Any]:
    """What a resumed run must find unchanged, as JSON has it: lists for tuples."""
    found = {
        "recipe": recipe.to_dict(),
        "data": dataset.fingerprint,
        "tokenizer": None if dataset.tokenizer is None else digest(dataset.tokenizer),
        "model": model.config.to_dict(),
        "world": world,
    }
    return json.loads(json.dumps(found))


def refuse_another_run(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Names what differs, if anything does."""
    changed = differences(before["recipe"], now["recipe"])
    changed += [f"the {name}" for name in ("data", "tokenizer") if before[name] != now[name]]
    if before["world"] != now["world"]:
        changed.append(f"processes: {before['world']} → {now['world']}")
    changed += [f"model.{line}" for line in differences(before["model"], now["model"])]
    if changed:
        more = [f"and {len(changed) - MOST_SHOWN} more"] if len(changed) > MOST_SHOWN else []
        raise ConfigError(
            f"this is another run than the one in {out}: {'; '.join(changed[:MOST_SHOWN] + more)}. Undo the change, or "
            f"start a new run in another --out"
        )


def save_run(run: Run, folder: Path, state: dict[str, Any], rate: float) -> bool:
    """Writes a checkpoint in the leading process; whether this is that process."""
    if damaged := not_finite(run.model):
        raise InputError(
            f"after step {run.step}, these weights are not finite: {damaged[0]}. Nothing is saved: a smaller "
            f"optimizer.rate than {rate:g}, weight_decay or matrix_rate may help"
        )
    if not run.group.leads:
        return False
    tensors: dict[str, dict[str, Tensor]] = {
        "weights": dict(run.model.named_parameters()),
        "optimizer": dict(sorted(run.optimizer.tensors().items())),  # the same bytes every time
    }
    if run.average is not None:
        tensors["average"] = run.average.weights
    write_checkpoint(folder, run.step, tensors, {**run.counters(), "best": plain_values(run.best), **state})
    return True


def restore(run: Run, found: Checkpoint, device: torch.device) -> None:
    """Weights, optimizer, average and counters as they were after that step."""
    state, weights = found.state, found.tensors("weights")
    for name, parameter in run.model.named_parameters():
        weights.copy_into(name, parameter.data)
    run.optimizer.load(found.tensors("optimizer"))
    if run.average is not None:
        run.average.load(found.tensors("average"))
    run.step = found.step
    run.tokens, run.skipped, run.in_a_row = state["tokens"], state["skipped"], state["in_a_row"]
    run.best = None if state["best"] is None else float(state["best"])
    run.best_step, run.waited = state["best_step"], state["waited"]
    usual = float("nan") if state["usual_loss"] is None else state["usual_loss"]
    run.usual_loss = torch.full((), usual, device=device)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two recipes, as `train.steps: 100 → 200`; keys that may change are left out."""
    found = []
    for key in sorted({*old, *new}):
        name, before, after = f"{prefix}{key}", old.get(key), new.get(key)
        if name in FREE:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{name}.")
        elif before != after:
            found.append(f"{name}: {json.dumps(before)} → {json.dumps(after)}")
    return found
