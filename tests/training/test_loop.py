"""`cutaway.train` learns what the loop in docs/training.md learns from the same batches."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toy_recipes import toy

from cutaway.checkpoints import load
from cutaway.training import trainer as train_module
from cutaway.training.loop import take_step
from cutaway.training.train import train

GUIDE = Path(__file__).parents[2] / "docs" / "training.md"


def loop_of_the_guide() -> Any:
    (block,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(block.partition("\n\n\nmodel = ")[0], str(GUIDE), "exec"), names)
    return names["train"]


@pytest.mark.parametrize("clip", [0.5, 1e9])
def test_the_loop_of_the_guide_gives_the_same_weights(tmp_path, monkeypatch, clip):
    first: dict[str, torch.Tensor] = {}
    batches: list[torch.Tensor] = []

    def noted(run: Any, batch: Any, rate: float) -> Any:
        if not first:
            first.update({name: value.clone() for name, value in run.model.state_dict().items()})
        (part,) = batch.parts
        batches.append(torch.cat([part["ids"], part["targets"][:, -1:]], dim=1))
        return take_step(run, batch, rate)

    monkeypatch.setattr(train_module, "take_step", noted)
    recipe = toy(
        "next_token", tmp_path / "data", model={"dropout": 0.0}, train={"steps": 25, "precision": "fp32"},
        optimizer={"kind": "adamw", "rate": 3e-3, "clip": clip}, schedule={"kind": "cosine", "warmup": 5, "final": 0.0},
        evaluate={"every": 25}, checkpoint={"every": 25},
    )  # fmt: skip
    train(recipe, tmp_path / "out")
    trained = load(tmp_path / "out")
    ours = load(tmp_path / "out").train()
    ours.load_state_dict(first)
    loop_of_the_guide()(ours, batches, steps=25, rate=3e-3, warmup=5, clip=clip)
    for name, value in trained.state_dict().items():
        moved = (value - first[name]).abs().max()
        assert moved > 0, name
        assert (ours.state_dict()[name] - value).abs().max() < 1e-3 * moved, name
