"""Fault 3: SIGTERM and Ctrl-C: a checkpoint is saved, and the exit code is 0 or 130."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.faults.killed_runs import (
    STEPS,
    Reference,
    Starter,
    checkpoint_folders,
    draws,
    fingerprints,
    same_steps,
    small,
    undisturbed,
)

from cutaway.training.checkpoint import read_checkpoint
from cutaway.training.interruption import Interruption
from cutaway.training.recipe_file import recipe_from, to_toml
from cutaway.training.run_log import read_log

CODES = {signal.SIGTERM: 0, signal.SIGINT: 130}
PATIENCE = 120  # seconds, as a guard against hanging


@pytest.mark.parametrize("number", CODES)
def test_fault_03_the_command_stops_with_a_checkpoint_and_the_right_exit_code(
    number: signal.Signals, place: Path, tmp_path: Path
):
    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(to_toml(recipe_from(small(place, train_steps=10**6, checkpoint_every=10**6))))
    command = [sys.executable, "-m", "cutaway", "train", str(recipe), "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + PATIENCE
            while not steps_of(out) and time.monotonic() < until and process.poll() is None:
                time.sleep(0.1)
            process.send_signal(number)
            said, complained = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == CODES[number], complained
    assert complained == ""
    (end,) = (event for event in read_log(out / "run" / "log.jsonl") if event["event"] == "end")
    assert end["reason"] == "interrupted"
    assert said.index("saving after this step …") < said.index("stopped at step")
    assert f"stopped at step {end['step']:,}\nnext:\n  cutaway train --resume --out {out}\n" in said
    *_, left = sorted(checkpoint_folders(out))  # an evaluation before the signal may have left another, the best
    assert read_checkpoint(left).step == end["step"]


def steps_of(out: Path) -> list[dict]:
    log = out / "run" / "log.jsonl"
    return [event for event in read_log(log) if event["event"] == "step"] if log.exists() else []


@pytest.mark.parametrize("number", CODES)
def test_fault_03_stopped_and_resumed_it_ends_bit_identical(
    number: signal.Signals, starter: Starter, reference: Reference, tmp_path: Path
):
    draw, stops = next(draws("stopped", number)), 0
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    for after in sorted(draw.sample(range(1, STEPS - 4), 3)):
        kill = {"after": after, "seconds": draw.random() * 0.02, "signal": int(number)}
        resume = bool(checkpoint_folders(out))
        ended = starter.train(reference.recipe, out, resume=resume, record=record, kill=kill)
        (outcome,) = ended.of("outcome")
        if after in [event["step"] for event in ended.of("step")] and not outcome["finished"]:
            assert (ended.signal, ended.exit) == (0, CODES[number]), kill
            assert read_checkpoint(checkpoint_folders(out)[-1]).step == outcome["step"]
            stops += 1
    assert stops
    starter.to_the_end(reference.recipe, out, record=record)
    assert fingerprints(out) == reference.prints
    same_steps(record, reference.record)


def test_fault_03_a_checkpoint_made_on_the_way_is_not_one_of_those_that_are_averaged(
    starter: Starter, place: Path, tmp_path: Path
):
    reference = undisturbed(starter, tmp_path, small(place, train_average=3, train_ema=0.0))
    out = tmp_path / "out"
    for after in (32, 37):
        kill = {"after": after, "signal": int(signal.SIGTERM)}
        ended = starter.train(reference.recipe, out, resume=bool(checkpoint_folders(out)), kill=kill)
        assert ended.exit == 0
        assert len(checkpoint_folders(out)) >= 3
    starter.to_the_end(reference.recipe, out)
    assert fingerprints(out) == reference.prints


def test_fault_03_what_signals_did_before_a_run_they_do_behind_it() -> None:
    before = {number: signal.getsignal(number) for number in CODES}
    with suppress(MemoryError), Interruption().listen():
        assert all(signal.getsignal(number) is not handler for number, handler in before.items())
        raise MemoryError
    assert {number: signal.getsignal(number) for number in CODES} == before
