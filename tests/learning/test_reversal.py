"""A small encoder–decoder learns to reverse, and looks where it must."""

import json

import torch
from typer.testing import CliRunner

from cutaway.toys.reversal import cross_attention, reversal_accuracy, reverse, train_reversal


def test_reversal_is_learnt_to_99_percent_and_attention_runs_backwards() -> None:
    torch.set_num_threads(1)
    losses: list[float] = []
    model = train_reversal(report=lambda step, loss: losses.append(loss))
    assert losses[0] > 3 > 0.05 > sum(losses[-50:]) / 50
    assert reversal_accuracy(model) > 0.99
    assert reverse(model, ["stressed", "at"]) == ["desserts", "ta"]
    pattern, written, read = cross_attention(model, "attention")
    assert written == [*"noitnetta", "<eos>"]
    assert read == [*"attention", "<eos>"]
    looked_at = pattern.mean(0)[:9].argmax(-1)
    assert looked_at.tolist() == list(range(8, -1, -1))


def test_the_same_seed_learns_the_same() -> None:
    first, second = (train_reversal(steps=3, seed=5).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_demo_command_says_what_it_did() -> None:
    from cutaway.cli import app

    result = CliRunner().invoke(app, ["demo", "--reverse", "cat", "--steps", "2", "--json"])
    said = json.loads(result.stdout)
    assert result.exit_code == 0
    assert said["parameters"] == 119040
    assert set(said["answers"]) >= {"cat", "transformer"}
    assert CliRunner().invoke(app, ["demo", "--reverse", "Ünfug!"]).exit_code == 2
