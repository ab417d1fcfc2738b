"""Fault 16: a step gives the same gradient however it is cut, because sums are divided by the targets of the whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.toy_recipes import near, toy

from cutaway.data.batches import Batch
from cutaway.model.model import Model
from cutaway.training.datasets import prepare
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.feed import SCALE, Feed, StepBatch
from cutaway.training.loop import Run, loss_function, take_step
from cutaway.training.optimizer import Optimizer
from cutaway.training.recipe import OptimizerPart
from cutaway.training.starting_weights import starting_model

KINDS = ["lines", "translate", "masked", "pretrain", "spans", "classify", "regress", "tag", "images"]


class WithEmptyRows:
    """Eight rows to a step, as ragged as the file has them; of each table's last rows there is no example."""

    def __init__(self, source: Any) -> None:
        self.source, self.steps, self.n_examples = source, source.steps, source.n_examples

    def __call__(self, step: int) -> Batch:
        batch = {name: values.copy() for name, values in self.source(step).items()}
        if "example" in batch and "image" not in batch:
            batch["example"][-2:] = -1
            for name in batch:
                if name.endswith("_length"):
                    batch[name][-2:] = 0
        return batch


def material_of(kind: str, folder: Path, **more: Any) -> tuple[TrainingData, Model]:
    """Eight rows a step, without dropout; random weights large enough that gradients are no noise."""
    more = {table: values for table, values in more.items() if values}
    recipe = toy(kind, folder, model={"dropout": 0.0}, train={"rows": 8, "tokens": 1024, "accumulate": 8}, **more)
    dataset = prepare(recipe, None)
    model, _ = starting_model(recipe, dataset.model_settings, torch.device("cpu"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return dataset, model


def steps_of(dataset: TrainingData, parts: int) -> StepBatch:
    feed = Feed(WithEmptyRows(dataset.train), dataset.objective, seed=0, accumulate=parts)
    batch = feed.make(1)
    return batch if dataset.tokenizer is None else feed.on_device(batch)  # pictures stay as they are


def gradient_of(dataset: TrainingData, model: Model, batch: StepBatch, scales: list[Any] | None = None) -> torch.Tensor:
    """The gradient of all parts; each scaled as the feed says, or by `scales`."""
    model.zero_grad()
    loss_of = loss_function(dataset.objective)
    for i, part in enumerate(batch.parts):
        loss_of(model, part if scales is None else {**part, SCALE: torch.tensor(scales[i])}).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("kind", KINDS)
def test_fault_16_eight_parts_of_one_row_are_one_part_of_eight(kind: str, tmp_path: Path) -> None:
    dataset, model = material_of(kind, tmp_path)
    whole, parts = (steps_of(dataset, n) for n in (1, 8))
    assert len(parts.parts) == len(whole.parts[0]["targets"]) == 8
    assert whole.counts == parts.counts
    together, apart = (gradient_of(dataset, model, batch) for batch in (whole, parts))
    assert near(apart, together, 1e-6)
    assert together.abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["lines", "translate", "pretrain", "classify"])
def test_fault_16_the_mean_of_the_parts_means_is_something_else(kind: str, tmp_path: Path) -> None:
    """What others shipped: each part divided by its own targets, and the parts averaged."""
    dataset, model = material_of(kind, tmp_path, objective={"mask_share": 0.5})
    whole, parts = (steps_of(dataset, n) for n in (1, 8))
    names = dataset.objective.targets.values()
    own = [[1 / 8 / max(1, int((part[name] != -100).sum())) for name in names] for part in parts.parts]
    assert not near(gradient_of(dataset, model, parts, own), gradient_of(dataset, model, whole), 1e-4)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("kind", ["lines", "translate", "pretrain", "classify"])
def test_fault_16_the_weights_after_a_step_are_the_same(kind: str, optimizer: str, tmp_path: Path) -> None:
    """In double precision: where a gradient is 0, as that of a key's bias is, Adam divides noise by noise."""
    after = []
    for n in (1, 2, 8):
        torch.manual_seed(0)
        dataset, model = material_of(kind, tmp_path)
        model.double()
        run = Run(
            model,
            dataset.objective,
            Optimizer(model, OptimizerPart(kind=optimizer)),
            loss_function(dataset.objective),
            clip=0.1,
        )
        result = take_step(run, steps_of(dataset, n), 1.0)
        assert result.length > 0.1  # clipped, which is not linear
        after.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert near(after[1], after[0], 1e-6)
    assert near(after[2], after[0], 1e-6)


@pytest.mark.parametrize("kind", ["lines", "translate", "pretrain", "classify", "images"])
def test_two_ranks_see_together_what_one_process_sees(kind: str, tmp_path: Path) -> None:
    dataset, _ = material_of(kind, tmp_path, objective={"shift": 1, "cutmix": 0.5} if kind == "images" else {})
    common: dict[str, Any] = {"seed": 0, "accumulate": 2}
    alone = Feed(dataset.train, dataset.objective, seed=0, accumulate=4)
    ranks = [Feed(dataset.train, dataset.objective, rank=rank, world=2, **common) for rank in range(2)]
    for step in range(3):
        whole, *shares = (feed.on_device(feed.make(step)) for feed in (alone, *ranks))
        for i, part in enumerate(whole.parts):
            theirs = shares[i % 2].parts[i // 2]
            assert all(torch.equal(part[name], theirs[name]) for name in part)
        assert all(share.counts == whole.counts for share in shares)
        seen = np.concatenate([part["targets"].flatten() for part in whole.parts])
        again = np.concatenate([part["targets"].flatten() for share in shares for part in share.parts])
        assert sorted(seen.tolist()) == sorted(again.tolist())
