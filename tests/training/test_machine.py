"""The machine: what a step costs, how fast it was, and settings that are put back."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.toy_recipes import toy

from cutaway.errors import CheckpointError, ConfigError
from cutaway.objectives import NextToken
from cutaway.training.machine import choose_device, machine_name, settings
from cutaway.training.speed import Lap, peak_flops, step_flops
from cutaway.training.tensorboard import TensorBoard


class Product(NextToken):
    """An objective that is one product of matrices, whatever the model."""

    def losses(self, model: Any, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"next_token": (batch["a"] @ batch["b"]).sum()}


def clock(monkeypatch: pytest.MonkeyPatch, times: list[float]) -> None:
    told: Iterator[float] = iter(times)
    monkeypatch.setattr("cutaway.training.speed.time.perf_counter", lambda: next(told))


def test_a_product_of_matrices_costs_two_operations_a_number_and_the_way_back_twice_as_many() -> None:
    part = {"a": torch.ones(4, 8), "b": torch.ones(8, 16)}
    assert step_flops(tiny("gpt2"), Product(), part) == 3 * 2 * 4 * 8 * 16  # type: ignore[arg-type]


def test_a_peak_is_the_best_of_some_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, [0.0, 8.0, 10.0, 12.0, 20.0, 24.0, 30.0, 46.0])
    assert peak_flops(torch.device("cpu"), torch.float32) == 2 * 1024**3 / 2.0


def test_a_lap_counts_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, [100.0, 104.0, 104.0, 106.0, 106.0, 200.0, 201.0, 201.0])
    lap = Lap(1000)
    lap.flops += 80
    assert lap.turn(1400) == (100.0, 20.0)
    lap.flops += 10
    assert lap.turn(1500) == (50.0, 5.0)
    lap.start(2000)  # something else was done meanwhile
    assert lap.turn(2007) == (7.0, 0.0)


@pytest.mark.parametrize("deterministic", [None, True, False])
def test_settings_are_put_back(deterministic: bool | None, tmp_path: Any) -> None:
    recipe = toy("lines", tmp_path, train={"threads": 3, "deterministic": deterministic})
    before = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with settings(recipe, torch.device("cpu")):
        assert torch.get_num_threads() == 3
        assert machine_name(torch.device("cpu")) == "3 CPU threads"
        assert torch.are_deterministic_algorithms_enabled() == (deterministic is not False)  # on a CPU by default
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
    assert torch.utils.deterministic.fill_uninitialized_memory == filled  # type: ignore[attr-defined]


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"train.device='cuda:1', but torch finds no GPU here"):
        choose_device("cuda:1")
    with pytest.raises(ConfigError, match=r"train.device='abacus': torch (knows|has) no such device"):
        choose_device("abacus")


class Writer:
    """In the place of TensorBoard's."""

    def __init__(self, folder: str) -> None:
        self.folder, self.told = folder, []  # type: ignore[var-annotated]

    def add_scalar(self, *what: Any) -> None:
        self.told.append(what)

    def add_text(self, *what: Any) -> None:
        self.told.append(what)

    def flush(self) -> None:
        self.told.append("flushed")


def test_tensorboard_is_told_every_number_of_steps_and_evaluations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path / "run")
    board({"event": "start", "step": 0, "parameters": 12})
    board({"event": "step", "step": 3, "steps": 9, "loss": 1.5, "tokens": 7})
    assert board.writer.told == [("train/loss", 1.5, 3), ("train/tokens", 7, 3)]
    board({"event": "evaluate", "step": 4, "loss": 0.5, "best": True, "samples": ["a", "b"]})
    valid = [("valid/loss", 0.5, 4), ("sample/0", "a", 4), ("sample/1", "b", 4), "flushed"]
    assert board.writer.told[2:] == valid
    board({"event": "checkpoint", "step": 4})
    board({"event": "end", "step": 4, "reason": "done"})
    assert board.writer.told[6:] == ["flushed", "flushed"]
    assert board.writer.folder == str(tmp_path / "run")


def test_a_full_disk_is_that_of_tensorboard_and_not_of_stdout(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, folder: str) -> None: ...

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Full  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"run cannot be written: .*No space left on device"):
        board({"event": "end"})
