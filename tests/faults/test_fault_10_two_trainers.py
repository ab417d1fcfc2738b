"""Fault 10: two trainers in one folder: the second refuses."""

import os
import signal
import time
from pathlib import Path

import pytest
from helpers.faults.killed_runs import Reference, Starter, checkpoint_folders, fingerprints, same_steps

from cutaway.errors import CheckpointError
from cutaway.training.recipe_file import recipe_from
from cutaway.training.run_folder import RunFolder
from cutaway.training.train import train


def test_fault_10_the_second_trainer_refuses_and_the_lock_of_a_killed_one_is_free(
    starter: Starter, reference: Reference, tmp_path: Path
):
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    starter.begin("train", recipe=reference.recipe, out=out, resume=False, record=record, pause=0.05)
    until = time.monotonic() + 120
    while not checkpoint_folders(out) and time.monotonic() < until:
        time.sleep(0.01)
    holder = int((out / "run" / "lock").read_text())
    log = (out / "run" / "log.jsonl").read_text()
    for resume in (False, True):
        with pytest.raises(CheckpointError, match=f"in use by another trainer \\(process {holder}\\)"):
            train(recipe_from(reference.recipe), out, resume=resume)
    assert (out / "run" / "lock").read_text() == str(holder)
    assert (out / "run" / "log.jsonl").read_text().startswith(log)
    os.kill(holder, signal.SIGKILL)  # the starter's child; the starter waits for it, so the number is still its own
    assert starter.end().killed
    with RunFolder(out).lock():
        pass
    starter.to_the_end(reference.recipe, out, record=record)
    assert fingerprints(out) == reference.prints
    same_steps(record, reference.record)


def test_fault_10_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(CheckpointError, match="file/run cannot be written: Not a directory"),
        RunFolder(tmp_path / "file").lock(),
    ):
        pass
