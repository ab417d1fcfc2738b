"""Fault 1: SIGKILL at a random instant, and the resumed run ends bit-identical: weights, optimizer, the moving average,
counters, the order of batches, what is dropped out, the model folder."""

from pathlib import Path

import pytest
from helpers.faults.forks import SPOILT
from helpers.faults.killed_runs import (
    SEED,
    STEPS,
    Reference,
    Starter,
    checkpoint_folders,
    draws,
    fingerprints,
    kill_at_random,
    same_steps,
    small,
    steps_in,
    undisturbed,
    was_in_the_middle,
)

SAVING = {  # what a save does, in its order → the calls that belong to it
    "weights": "weights.safetensors",
    "optimizer": "optimizer.safetensors",
    "average": "average.safetensors",
    "state": "state.json",
    "manifest": "manifest.json",
    "rename": "rename write_checkpoint",
    "flush": "fsync write_checkpoint",
    "hide the old": "rename keep_newest",
    "remove the old": "unlink keep_newest",
}


def same_end(out: Path, record: Path, reference: Reference) -> None:
    assert fingerprints(out) == reference.prints
    same_steps(record, reference.record)


def test_the_reference_has_all_that_could_go_wrong(reference: Reference):
    steps = steps_in(reference.record)
    assert len(steps) == STEPS
    assert [step["step"] for step in steps if step["skip"]] == sorted(SPOILT)
    assert len({step["batch"] for step in steps}) == STEPS
    assert all(len(step["examples"]) == 4 for step in steps)
    assert len(reference.calls) >= STEPS // 5
    assert reference.prints["state"]["skipped"] == len(SPOILT)
    assert reference.prints["state"]["best_step"] < STEPS, "the best weights should not be the last: both should matter"


@pytest.mark.parametrize("number", range(20))
def test_fault_01_killed_at_a_random_instant_it_ends_bit_identical(
    number: int, starter: Starter, reference: Reference, tmp_path: Path
):
    out, record = kill_at_random(starter, reference.recipe, tmp_path, number)
    starter.to_the_end(reference.recipe, out, record=record)
    same_end(out, record, reference)


@pytest.mark.parametrize("what", SAVING)
def test_fault_01_killed_while_saving_it_ends_bit_identical(
    what: str, starter: Starter, reference: Reference, tmp_path: Path
):
    draw = next(draws(SEED, what))
    places = [
        (save, call)
        for save, calls in enumerate(reference.calls)
        for call, name in enumerate(calls)
        if name.endswith(SAVING[what]) and (save > 0 or what == "weights")
    ]
    save, call = draw.choice(places)
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    ended = starter.train(reference.recipe, out, record=record, kill={"save": save, "call": call})
    print(f"seed {SEED}, {what}: killed in save {save} before call {call}, {reference.calls[save][call]}")
    assert was_in_the_middle(ended, out)
    starter.to_the_end(reference.recipe, out, record=record)
    same_end(out, record, reference)


def test_fault_01_killed_again_and_again_it_ends_bit_identical(starter: Starter, reference: Reference, tmp_path: Path):
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    for after in (0, 7, 13, 13, 21, 34, STEPS):
        kill = {"after": after, "hold": True}
        ended = starter.train(reference.recipe, out, resume=bool(checkpoint_folders(out)), record=record, kill=kill)
        assert was_in_the_middle(ended, out)
    starter.to_the_end(reference.recipe, out, record=record)
    same_end(out, record, reference)


@pytest.mark.parametrize("after", [0, 2])
def test_fault_01_killed_before_the_first_checkpoint_it_starts_at_step_0_and_says_so(
    after: int, starter: Starter, reference: Reference, tmp_path: Path
):
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    ended = starter.train(reference.recipe, out, record=record, kill={"after": after, "hold": True})
    assert was_in_the_middle(ended, out)
    assert not checkpoint_folders(out)
    starter.to_the_end(reference.recipe, out, record=record)
    same_end(out, record, reference)


def test_fault_01_killed_before_the_first_checkpoint_another_run_is_refused(
    starter: Starter, reference: Reference, place: Path, tmp_path: Path
):
    out, other = tmp_path / "out", small(place, seed=4, train_steps=2)
    assert starter.train(reference.recipe, out, kill={"after": 2, "hold": True}).killed
    assert not checkpoint_folders(out)
    refused = starter.train(other, out, resume=True)
    assert refused.error.startswith(f"ConfigError: this is another run than the one in {out}: seed: 2 → 4; train.steps")
    assert starter.train(other, out, kill={"after": 0, "hold": True}).killed  # without --resume it is a new run …
    starter.to_the_end(other, out)  # … and the old one is forgotten


def test_fault_01_where_no_run_was_there_is_none_to_resume(starter: Starter, reference: Reference, tmp_path: Path):
    for _ in range(2):  # the first try leaves nothing that the second would take for a run
        refused = starter.train(reference.recipe, tmp_path / "out", resume=True)
        assert refused.error == f"CheckpointError: {tmp_path / 'out'} holds no run: start it without --resume"


VARIANTS = {
    "Muon": {"optimizer_kind": "muon", "optimizer_matrix_rate": 0.01},
    "hidden words": {
        "model": {"size": "bert-base", "n_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32},
        "objective": {"kind": "masked"},
        "tokenizer": {"kind": "word"},
        "data_seq_len": 16,
    },
    "the mean of the last checkpoints": {"train_average": 3, "train_ema": 0.0},
    "LoRA and checkpointing": {"train_lora_rank": 2, "train_checkpointing": True, "train_freeze": ["*norm*"]},
    "stopped early": {"evaluate_patience": 1, "evaluate_every": 4},
}


@pytest.mark.parametrize("what", VARIANTS)
def test_fault_01_other_ways_to_train_end_bit_identical_too(what: str, starter: Starter, place: Path, tmp_path: Path):
    reference = undisturbed(starter, tmp_path, small(place, **VARIANTS[what]))
    last = len(steps_in(reference.record))
    assert (last < STEPS) == (what == "stopped early")
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    for after, on in ((last // 2, "step"), (last, "checkpoint")):  # the second time, the model folder is due
        kill = {"after": after, "on": on, "hold": True}
        ended = starter.train(reference.recipe, out, resume=bool(checkpoint_folders(out)), record=record, kill=kill)
        assert was_in_the_middle(ended, out)
    starter.to_the_end(reference.recipe, out, record=record)
    same_end(out, record, reference)
