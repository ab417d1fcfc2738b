"""Faults 7 and 8: a loss that is NaN or infinite, and a spike: no update, counted, the examples named.

Ten in a row stop the run.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.faults.forks import SPOILT
from helpers.faults.killed_runs import Reference, Starter, checkpoint_folders, small, steps_in
from torch import Tensor
from typer.testing import CliRunner

from cutaway.training.checkpoint import read_checkpoint
from cutaway.training.feed import Feed
from cutaway.training.loop import MOST_IN_A_ROW, Run, take_step
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import recipe_from, to_toml
from cutaway.training.run_log import read_log
from cutaway.training.train import train
from cutaway.training.trainer import Trainer

OPTIMIZERS = {
    "adamw": {},
    "adam": {"optimizer_kind": "adam"},
    "muon": {"optimizer_kind": "muon", "optimizer_matrix_rate": 0.01},
}


def bits(run: Run) -> dict[str, bytes]:
    """Every bit of the weights, of what the optimizer remembers, and of the moving average."""
    assert run.average is not None
    averages = {f"{name}/average": tensor for name, tensor in run.average.weights.items()}
    tensors: dict[str, Tensor] = {**dict(run.model.named_parameters()), **run.optimizer.tensors(), **averages}
    return {name: tensor.detach().cpu().numpy().tobytes() for name, tensor in tensors.items()}


def steps(
    recipe: Recipe, out: Path, factors: dict[int, float], n: int
) -> tuple[Run, list[dict[str, bytes]], list[float]]:
    """n steps, some with a spoilt loss: the run, its bits after each step, and which steps were skipped."""
    trainer = Trainer(recipe, out, [])
    seen, skipped = [], []
    with trainer.open(False):
        run = trainer.run
        feed = Feed(trainer.dataset.train, run.objective, seed=recipe.seed, accumulate=recipe.train.accumulate)
        for step in range(n):
            batch = feed.make(step)
            batch.parts[-1]["scale"] *= factors.get(step, 1.0)  # one part of the step is enough
            skipped.append(take_step(run, batch, 1.0).skip.item())
            seen.append(bits(run))
    return run, seen, skipped


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_fault_07_a_loss_that_is_no_number_changes_no_bit_of_weights_optimizer_and_average(
    kind: str, loss: str, place: Path, tmp_path: Path
):
    recipe = recipe_from(small(place, train_spike=0.0, **OPTIMIZERS[kind]))
    _, seen, skipped = steps(recipe, tmp_path / "out", {2: float(loss), 3: float(loss)}, 5)
    assert skipped == [0, 0, 1, 1, 0]
    assert seen[1] == seen[2] == seen[3]
    assert seen[4] != seen[3] != seen[0]
    assert not any(torch.frombuffer(bytearray(data), dtype=torch.float32).isnan().any() for data in seen[4].values())


def test_fault_07_a_gradient_that_is_no_number_counts_as_such_a_loss(place: Path, tmp_path: Path):
    recipe = recipe_from(small(place, train_spike=0.0))
    trainer = Trainer(recipe, tmp_path / "out", [])
    with trainer.open(False):
        run = trainer.run
        feed = Feed(trainer.dataset.train, run.objective, seed=recipe.seed)
        take_step(run, feed.make(0), 1.0)
        before = bits(run)
        next(run.model.parameters()).register_hook(lambda gradient: gradient * float("nan"))
        result = take_step(run, feed.make(1), 1.0)
        assert result.terms.isfinite().all()
        assert result.skip.item() == 1
        assert bits(run) == before


def test_fault_07_a_skipped_step_is_counted_and_its_examples_are_named(reference: Reference):
    events = [event for event in read_log(reference.out / "run" / "log.jsonl") if event["event"] == "skip"]
    examples = {step["step"]: step["examples"] for step in steps_in(reference.record)}
    assert [event["step"] - 1 for event in events] == sorted(SPOILT)
    assert [event["skipped"] for event in events] == [1, 2, 3]
    assert [event["examples"] for event in events] == [examples[step] for step in sorted(SPOILT)]
    assert all(len(event["examples"]) == 4 for event in events)
    assert reference.prints["state"]["skipped"] == 3
    assert reference.prints["state"]["in_a_row"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"data_split": "line"},
        {"objective": {"kind": "masked"}, "tokenizer": {"kind": "word"},
         "model": {"size": "bert-base", "n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32}},
        {"objective": {"kind": "pretrain"}, "tokenizer": {"kind": "wordpiece", "vocab_size": 60}, "data_seq_len": 8,
         "model": {"size": "bert-base", "n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32}},
    ],
)  # fmt: skip
def test_fault_07_every_way_of_making_batches_names_its_examples(changes: dict[str, Any], place: Path, tmp_path: Path):
    text = (place / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(text.replace(" the ", " the.\n"))
    recipe = recipe_from(small(tmp_path, **changes))
    trainer = Trainer(recipe, tmp_path / "out", [])
    with trainer.open(False):
        batch = Feed(trainer.dataset.train, trainer.run.objective, seed=3).make(1)
    assert len(batch.examples) == 4
    assert max(batch.examples) > 0


def test_fault_07_ten_in_a_row_stop_the_run_and_the_last_good_checkpoint_is_whole(
    starter: Starter, place: Path, tmp_path: Path
):
    out = tmp_path / "out"
    spoilt = dict.fromkeys(range(12, 40), "nan") | {3: "inf"}
    ended = starter.train(small(place), out, spoilt=spoilt)
    assert ended.exit == 2
    assert f"TrainingStopped: {MOST_IN_A_ROW} steps in a row, up to step 22, had no finite loss" in ended.error
    assert [event["step"] for event in ended.of("skip")] == [4, *range(13, 23)]
    state = [read_checkpoint(path).state for path in checkpoint_folders(out)][-1]
    assert (state["step"], state["skipped"], state["in_a_row"]) == (20, 9, 8)
    again = starter.train(small(place), out, resume=True, spoilt=spoilt)  # the count goes on from 8
    assert [event["step"] for event in again.of("skip")] == [21, 22]
    assert again.exit == 2
    (outcome,) = starter.train(small(place), out, resume=True, spoilt={}).of("outcome")  # the cause is gone
    assert outcome["finished"]


def test_fault_07_the_command_stops_with_exit_code_2_and_one_line(place: Path, tmp_path: Path):
    from cutaway.cli import app

    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(to_toml(recipe_from(small(place, optimizer_rate=1e30, checkpoint_every=1))))
    result = CliRunner().invoke(app, ["train", str(recipe), "--out", str(out)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: 10 steps in a row, up to step ")
    assert result.stderr.count("\n") == 1
    assert result.stdout.count("had no usable loss and was skipped") == MOST_IN_A_ROW
    assert all(read_checkpoint(path) for path in checkpoint_folders(out))


@pytest.mark.parametrize(("spike", "skipped"), [(3.0, [0, 0, 0, 1, 0]), (0.0, [0, 0, 0, 0, 0])])
def test_fault_08_a_spike_is_skipped_when_that_is_switched_on(
    spike: float, skipped: list[float], place: Path, tmp_path: Path
):
    recipe = recipe_from(small(place, train_spike=spike, train_accumulate=1))
    run, seen, found = steps(recipe, tmp_path / "out", {3: 4.0}, 5)
    assert found == skipped
    assert (seen[2] == seen[3]) == (spike > 0)
    assert run.usual_loss is not None
    assert run.usual_loss.isnan().item() == (spike == 0)


def test_fault_08_a_spike_is_counted_and_leaves_the_usual_loss_alone(place: Path, tmp_path: Path):
    recipe = recipe_from(small(place, train_steps=8, train_accumulate=1, train_spike=3.0))
    make = Feed.make

    def spoilt(feed: Feed, step: int) -> Any:
        batch = make(feed, step)
        batch.parts[0]["scale"] *= 1000.0 if step == 5 else 1.0
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "make", spoilt)
        train(recipe, tmp_path / "out")
    state = read_checkpoint(checkpoint_folders(tmp_path / "out")[-1]).state
    assert state["skipped"] == 1
    assert 2 < state["usual_loss"] < 5
