"""Two processes find the weights that one would: the sum of the parts' gradients is the gradient of the whole, and what
is dropped out of a part does not depend on who takes it."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import some_ids, tiny
from helpers.toy_recipes import near, toy
from torch import Tensor, nn

from cutaway.checkpoints import load
from cutaway.checkpoints.tensors import open_tensors, write_tensors
from cutaway.errors import ConfigError
from cutaway.objectives import NextToken
from cutaway.training.feed import SCALE, Feed, StepBatch
from cutaway.training.loop import Run, loss_function, take_step
from cutaway.training.machine import choose_device
from cutaway.training.optimizer import Optimizer
from cutaway.training.parallel import ProcessGroup, join_group, leads
from cutaway.training.recipe import OptimizerPart, Recipe
from cutaway.training.train import train
from cutaway.training.trainer import Trainer

KINDS = ["lines", "translate", "pretrain", "classify"]
# Above the noise of adding in another order: where a gradient is 0, Adam divides noise by noise.
TABLES: dict[str, dict[str, Any]] = {
    "model": {"dropout": 0.0},
    "train": {"steps": 3, "rows": 7, "tokens": 512},
    "optimizer": {"eps": 1e-4, "clip": 0.1},
    "evaluate": {"every": 3},
}


def recipe_of(kind: str, folder: Path, *, dropout: float = 0.0) -> Recipe:
    """Seven rows a step: four for the first process, three for the second."""
    return toy(kind, folder, **TABLES | {"model": {"dropout": dropout}})


def gradient_of(recipe: Recipe, out: Path, parts: int = 1) -> Tensor:
    """The gradient of the first step, which each process takes in so many parts."""
    trainer = Trainer(recipe, out, [])
    with trainer.open(False):
        run, group = trainer.run, trainer.group
        feed = Feed(trainer.dataset.train, run.objective, seed=1, accumulate=parts, rank=group.rank, world=group.world)
        take_step(run, feed.on_device(feed.make(0)), 1.0)
    return torch.cat([parameter.grad.flatten() for parameter in run.trained if parameter.grad is not None])


def work(folder: Path) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    for kind in KINDS:
        assert train(recipe_of(kind, folder), folder / f"two-{kind}").step == 3
        found = {str(p): gradient_of(recipe_of(kind, folder, dropout=p), folder / f"{kind}-{p}") for p in (0.0, 0.5)}
        if leads():
            write_tensors(folder / f"two-{kind}.safetensors", found)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have worked."""
    folder = tmp_path_factory.mktemp("two")
    recipe_of("lines", folder)  # writes the files
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "CUTAWAY_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            _, said = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_find_the_weights_of_one(kind: str, two: Path, tmp_path: Path) -> None:
    train(recipe_of(kind, two), tmp_path / "one")
    one, both = load(tmp_path / "one"), load(two / f"two-{kind}")
    for (name, a), b in zip(one.named_parameters(), both.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-6, name


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_find_the_gradient_of_one(kind: str, two: Path, tmp_path: Path) -> None:
    still, dropped = (open_tensors(two / f"two-{kind}.safetensors").read(p) for p in ("0.0", "0.5"))
    assert near(still, gradient_of(recipe_of(kind, two), tmp_path / "whole"), 1e-6)
    in_two = gradient_of(recipe_of(kind, two, dropout=0.5), tmp_path / "parts", parts=2)
    assert near(dropped, in_two, 1e-6)  # with dropout: that of one process which takes the same two parts
    assert not near(dropped, still, 0.1)


# --- what is dropped out ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silent(ProcessGroup):
    """One of several processes that hears nothing of the others."""

    def add_up(self, parameters: Sequence[nn.Parameter], terms: Tensor) -> None:
        pass


def loss_of_a_step(*, seed: int = 0, step: int = 0, rank: int = 0, world: int = 2, parts: int = 1) -> float:
    """The loss of the last part of a step; the parts are all the same."""
    model = tiny("gpt2", dtype=torch.float32, dropout=0.5).train()
    run = Run(
        model, NextToken(), Optimizer(model, OptimizerPart()), loss_function(NextToken()), group=Silent(rank, world),
        seed=seed,
    )  # fmt: skip
    ids = some_ids(4, 9)
    part = {"ids": ids[:, :-1], "targets": ids[:, 1:], SCALE: torch.ones(1)}
    first = StepBatch(step, [part] * (parts - 1), {}, 0, [])
    before = 0.0 if parts == 1 else take_step(run, first, 0.0).terms.item()
    return take_step(run, StepBatch(step, [part] * parts, {}, 0, []), 0.0).terms.item() - before


def test_dropout_depends_on_the_seed_the_step_and_the_part_and_on_nothing_else() -> None:
    found = loss_of_a_step()
    torch.rand(5)  # whatever was drawn before
    assert loss_of_a_step() == found
    assert len({found, *(loss_of_a_step(**{name: 1}) for name in ("seed", "step", "rank"))}) == 4


def test_ranks_drop_out_what_one_process_would_from_their_parts() -> None:
    """Part i of rank r is the part i · world + r of the step."""
    alone = [loss_of_a_step(world=1, parts=n) for n in (1, 2, 3, 4)]
    ranks = [loss_of_a_step(rank=rank, parts=n) for n in (1, 2) for rank in (0, 1)]
    assert alone == pytest.approx(ranks, rel=1e-5)
    assert len({round(loss, 2) for loss in alone}) == 4


# --- who takes what ---------------------------------------------------------------------------------------------------


def test_one_process_alone_joins_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")  # of something else
    assert join_group(torch.device("cpu")) == ProcessGroup(rank=0, world=1)
    assert leads()
    assert ProcessGroup().leads
    assert not ProcessGroup(rank=1, world=2).leads


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(
        ConfigError, match=r"train.device='gpu': torch has no such device to compute on here; auto, cpu, cuda"
    ):
        choose_device("gpu")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 1)
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"train.device='cuda:0' is one GPU for several processes"):
        choose_device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="no GPU is left for process 2 of this machine: start at most 2"):
        choose_device("auto")


if __name__ == "__main__":
    work(Path(sys.argv[1]))
