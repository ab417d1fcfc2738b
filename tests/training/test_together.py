"""Features together: averages × the best weights × a resume, in steps that nothing divides evenly.

Beside the run a plain record is kept of its weights after each step; what it measures, saves and leaves must be found
in there.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toy_recipes import toy
from torch import Tensor

from cutaway.checkpoints import load
from cutaway.checkpoints.tensors import open_tensors
from cutaway.model.model import Model
from cutaway.training import trainer as train_module
from cutaway.training.loop import take_step
from cutaway.training.train import train

Weights = dict[str, Tensor]
STEPS = 7  # measured every 3, saved every 2, told every 5
LOSSES = {3: 2.0, 6: 1.0, 7: 3.0}  # what is said to be measured
KINDS: dict[str, tuple[dict[str, Any], int, list[int]]] = {  # [train], checkpoint.keep, and the steps that are averaged
    "plain": ({}, 1, []),
    "ema": ({"ema": 0.8}, 1, []),
    "average of more than are kept": ({"average": 3}, 1, [4, 6, 7]),
    "average of fewer than are kept": ({"average": 2}, 3, [6, 7]),
}


def weights_of(model: Model) -> Weights:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(found: Weights, wanted: Weights) -> bool:
    return found.keys() == wanted.keys() and all(
        torch.allclose(found[name], wanted[name], rtol=1e-4, atol=1e-6) for name in wanted
    )


class Record:
    """A run's weights after each step, the plain ones and a moving average by its formula; what was measured."""

    def __init__(self) -> None:
        self.plain: dict[int, Weights] = {}
        self.ema: dict[int, Weights] = {}
        self.rates: dict[int, float] = {}
        self.measured: list[tuple[int, Weights]] = []

    def step(self, run: Any, batch: Any, rate: float) -> Any:
        if run.step == 0:
            self.plain[0] = self.ema[0] = weights_of(run.model)
        result = take_step(run, batch, rate)
        step, decay = run.step, min(0.8, (1 + run.step) / (10 + run.step))
        self.rates[step], self.plain[step] = rate, weights_of(run.model)
        self.ema[step] = {
            name: decay * old + (1 - decay) * self.plain[step][name] for name, old in self.ema[step - 1].items()
        }
        return result

    def validate(self, model: Model, *given: Any, **more: Any) -> dict[str, float]:
        step = max(self.plain)
        again = step == STEPS and any(at == STEPS for at, _ in self.measured)
        self.measured.append((step, weights_of(model)))
        return {"loss": 9.0 if again else LOSSES[step]}


@pytest.mark.parametrize(("keep_best", "resumed"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_measured_saved_and_kept_are_the_weights_that_the_recipe_asks_for(
    kind: str, keep_best: bool, resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, keep, averaged = KINDS[kind]
    recipe = toy(
        "lines", tmp_path, train={"steps": STEPS, **more}, schedule={"kind": "inverse_sqrt", "warmup": 3},
        evaluate={"every": 3, "log": 5, "keep_best": keep_best, "samples": 0}, checkpoint={"every": 2, "keep": keep},
        optimizer={"rate": 0.03},
    )  # fmt: skip
    record, out, events = Record(), tmp_path / "out", []  # type: ignore[var-annotated]

    def killed_at_5(run: Any, batch: Any, rate: float) -> Any:
        if run.step == 4:
            raise RuntimeError("killed")
        return record.step(run, batch, rate)

    monkeypatch.setattr(train_module, "validate", record.validate)
    if resumed:
        monkeypatch.setattr(train_module, "take_step", killed_at_5)
        with pytest.raises(RuntimeError, match="killed"):
            train(recipe, out, listeners=[events.append])
    monkeypatch.setattr(train_module, "take_step", record.step)
    outcome = train(recipe, out, resume=resumed, listeners=[events.append])

    of_run = record.ema if kind == "ema" else record.plain
    steps = [event["step"] for event in events if event["event"] == "step"]
    assert steps == [1, 5, 7]
    assert [event["step"] for event in events if event["event"] == "evaluate"] == [3, 6, 7]
    rates = {event["step"]: event["rate"] for event in events if event["event"] == "step"}
    assert rates == pytest.approx({1: 0.03 / 3, 5: 0.03 * (3 / 5) ** 0.5, 7: 0.03 * (3 / 7) ** 0.5})
    assert record.rates[4] == pytest.approx((3 / 4) ** 0.5)

    mean: Weights = {
        name: torch.stack([record.plain[step][name] for step in averaged or [0]]).mean(dim=0)
        for name in record.plain[0]
    }
    assert [step for step, _ in record.measured] == [3, 6, 7] + [7] * bool(averaged)
    for step, found in record.measured[:3]:
        assert same(found, of_run[step])
        assert not same(found, of_run[step - 1])
        assert kind != "ema" or not same(found, record.plain[step])
    assert not averaged or same(record.measured[3][1], mean)

    places = {int(path.name[-8:]): path for path in (out / "run" / "checkpoints").glob("step-*")}
    assert places.keys() == ({4, 6, 7} if averaged else {6, 7})
    for step, place in places.items():
        source = open_tensors(place / "weights.safetensors")
        assert same({name: source.read(name) for name in source.names()}, record.plain[step])

    last = 6 if keep_best else 7
    assert same(weights_of(load(out)), mean if averaged else of_run[last])
    assert outcome.scores["loss"] == (9.0 if averaged else LOSSES[last])
