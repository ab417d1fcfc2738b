"""Going on: what a run depends on, and everything that a checkpoint puts back."""

import json
from pathlib import Path
from typing import Any

import torch

from cutaway.data.corpus import digest
from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.training.checkpoint import Checkpoint
from cutaway.training.datasets.shared import TrainingData
from cutaway.training.loop import Run
from cutaway.training.recipe import Recipe, differences

MOST_SHOWN = 5  # differences from the run that is resumed


def depends_on(recipe: Recipe, dataset: TrainingData, model: Model, world: int) -> dict[str, Any]:
    """What a resumed run must find as it was, in the words of JSON, which has lists for tuples."""
    found = {
        "recipe": recipe.to_dict(),
        "data": dataset.fingerprint,
        "tokenizer": None if dataset.tokenizer is None else digest(dataset.tokenizer),
        "model": model.config.to_dict(),
        "world": world,
    }
    return json.loads(json.dumps(found))


def refuse_another_run(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Says what differs, where something does."""
    changed = differences(before["recipe"], now["recipe"])
    changed += [f"the {name}" for name in ("data", "tokenizer") if before[name] != now[name]]
    if before["world"] != now["world"]:
        changed.append(f"processes: {before['world']} → {now['world']}")
    changed += [f"model.{line}" for line in differences(before["model"], now["model"])]
    if changed:
        more = [f"and {len(changed) - MOST_SHOWN} more"] if len(changed) > MOST_SHOWN else []
        raise ConfigError(
            f"this is another run than the one in {out}: {'; '.join(changed[:MOST_SHOWN] + more)}. Put it back as it "
            f"was, or start a new run in another --out"
        )


def restore(run: Run, found: Checkpoint, device: torch.device) -> None:
    """Weights, optimizer, average, counters: the run as it was after that step."""
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
