"""Measuring a model while it trains: the loss on examples that it does not learn from, scores, and samples."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from cutaway.data.batches import Source
from cutaway.data.order import generator
from cutaway.model.model import Model
from cutaway.model.tap import watch
from cutaway.objectives import IGNORED, Objective, as_tensors
from cutaway.training.datasets.training_data import VALIDATE, TrainingData, spread


@contextmanager
def eval_mode(model: Model) -> Iterator[None]:
    """Without dropout, for as long as the block lasts; then as before, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def validate(
    model: Model, objective: Objective, source: Source, *, batches: int = 0, autocast: torch.dtype | None = None
) -> dict[str, float]:
    """The mean loss of each term over all examples, or n batches of them, and the scores of labels."""
    sums: dict[str, float] = dict.fromkeys(objective.targets, 0.0)
    counts: dict[str, int] = dict.fromkeys(objective.targets, 0)
    answers, labels = [], []
    has_labels = "label" in objective.targets
    watched: AbstractContextManager[Any] = watch(model, "head.logits") if has_labels else nullcontext()
    with eval_mode(model), watched as seen:  # the answers are watched on their way to the loss: one pass is enough
        for step in spread(min(batches or source.steps, source.steps), source.steps):
            arrays = objective.prepare(source(step), generator(VALIDATE, step))
            batch = as_tensors(arrays, model.device)
            with torch.autocast(model.device.type, autocast, enabled=autocast is not None):
                losses = objective.losses(model, batch)
            if has_labels:
                answers.append(seen["head.logits"].float().cpu().numpy())
                labels.append(arrays["targets"])
            for term, n in objective.counts(arrays).items():
                sums[term] += losses[term].double().item()
                counts[term] += n
    means = {term: sums[term] / max(1, counts[term]) for term in sums}
    result = {"loss": sum(objective.weight(term) * mean for term, mean in means.items())}
    if len(means) > 1:
        result |= {f"loss_{term}": mean for term, mean in means.items()}
    if has_labels:
        rows = np.concatenate([logits.reshape(-1, logits.shape[-1]) for logits in answers])
        result |= scores(rows, np.concatenate([targets.reshape(-1) for targets in labels]))
    return result


def scores(answers: Any, labels: Any) -> dict[str, float]:
    """GLUE's scores for classes, or for numbers."""
    from cutaway.evaluation.scores import scores_for

    is_number = labels.dtype.kind == "f"
    counted = ~np.isnan(labels) if is_number else labels != IGNORED
    best = answers[counted, 0] if is_number else answers[counted].argmax(axis=-1)
    known = scores_for(None if is_number else answers.shape[-1])
    return {name: score(best, labels[counted]) for name, score in known.items()}


def bits(result: dict[str, float], dataset: TrainingData) -> dict[str, float]:
    """Perplexity and bits per byte of a language model, from its mean loss in nats per token."""
    if dataset.task.scores != "perplexity":
        return {}
    found = {"perplexity": math.exp(min(result["loss"], 100.0))}
    if dataset.bytes_per_token:
        found["bits_per_byte"] = result["loss"] / math.log(2) / dataset.bytes_per_token
    return found


@torch.no_grad()
def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """What the model makes of a few examples: how a text goes on, a translation, filled blanks, labels."""
    if n < 1:
        return []
    with eval_mode(model):
        return dataset.task.samples(model, dataset, n, prompt)
