"""Faults 5 and 6: a flipped byte, a file that is cut short, empty or gone: named, and the one before it taken."""

import json
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.faults.killed_runs import Reference, Starter, checkpoint_folders, fingerprints, same_steps, steps_in

from cutaway.errors import CheckpointError
from cutaway.training.checkpoint import checkpoints, keep_newest, newest, read_checkpoint, write_checkpoint
from cutaway.training.recipe_file import recipe_from
from cutaway.training.train import train

FILES = [
    "weights.safetensors", "optimizer.safetensors", "average.safetensors", "state.json", "manifest.json",
]  # fmt: skip


def flip(path: Path, place: int | None = None, bit: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= bit
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def falls_back(folder: Path) -> str:
    """What is said when the newest checkpoint is damaged; the one before it is found."""
    said: list[str] = []
    found = newest(folder, said.append)
    assert found is not None
    assert found.path == checkpoint_folders(folder.parents[1])[-2]
    (complaint,) = said
    return complaint


def ends_identical(starter: Starter, reference: Reference, half: Path, record: Path) -> str:
    """Resumes; what was noted on the way."""
    step = int(checkpoint_folders(half)[-2].name.removeprefix("step-"))
    ended = starter.to_the_end(reference.recipe, half, record=record)
    assert steps_in(record)[0]["step"] == step
    assert fingerprints(half) == reference.prints
    return ended.notes


@pytest.mark.parametrize("name", FILES)
def test_fault_05_a_flipped_byte_is_named_and_the_checkpoint_before_it_taken(
    name: str, starter: Starter, reference: Reference, half: Path, tmp_path: Path
):
    last = checkpoint_folders(half)[-1]
    flip(last / name)
    complaint = falls_back(last.parent)
    assert str(last) in complaint
    assert name in complaint
    assert complaint in ends_identical(starter, reference, half, tmp_path / "steps.jsonl")


@pytest.mark.parametrize("name", FILES)
def test_fault_05_a_flip_of_any_byte_is_seen(name: str, half: Path):
    path = checkpoint_folders(half)[-1] / name
    whole, draw = path.read_bytes(), random.Random(name)
    places = range(len(whole)) if name == "manifest.json" else draw.sample(range(len(whole)), 100)
    for place in places:
        bit = 1 << draw.randrange(8)
        flip(path, place, bit)
        with pytest.raises(CheckpointError, match=f"step-000000.*{name.removesuffix('.safetensors')}|manifest.json"):
            read_checkpoint(path.parent)
        path.write_bytes(whole)
    read_checkpoint(path.parent)


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_fault_06_a_file_that_is_cut_short_empty_or_gone_is_named_and_the_checkpoint_before_it_taken(
    name: str, damage: Callable[[Path], None], half: Path
):
    path = checkpoint_folders(half)[-1] / name
    damage(path)
    if name == "manifest.json" and damage is Path.unlink:  # written last: without it there is no checkpoint
        found = newest(path.parents[1], pytest.fail)
        assert found is not None
        assert found.path != path.parent
    else:
        assert str(path) in falls_back(path.parents[1])


def test_fault_06_a_run_with_an_empty_file_ends_bit_identical(
    starter: Starter, reference: Reference, half: Path, tmp_path: Path
):
    record = tmp_path / "steps.jsonl"
    empty(checkpoint_folders(half)[-1] / "optimizer.safetensors")
    assert "optimizer.safetensors is damaged" in ends_identical(starter, reference, half, record)
    assert {step["step"] for step in steps_in(record)} < {step["step"] for step in steps_in(reference.record)}
    wanted = {step["step"]: step for step in steps_in(reference.record)}
    assert all(step == wanted[step["step"]] for step in steps_in(record))


def test_fault_05_the_one_that_was_taken_stays_until_there_is_a_newer_one(
    starter: Starter, reference: Reference, half: Path
):
    recipe = {**reference.recipe, "checkpoint": {**reference.recipe["checkpoint"], "keep": 1}}
    best = half / "run" / "checkpoints" / f"step-{reference.prints['state']['best_step']:08d}"
    *_, taken, _ = (path for path in checkpoint_folders(half) if path != best)  # which would stay anyway
    for path in checkpoint_folders(half):
        if path > taken:
            flip(path / "weights.safetensors")
    kill = {"after": read_checkpoint(taken).step + 1, "hold": True}
    assert starter.train(recipe, half, resume=True, kill=kill).killed
    assert taken in checkpoint_folders(half)
    starter.to_the_end(reference.recipe, half)
    assert fingerprints(half) == reference.prints


def test_fault_05_what_is_saved_before_the_step_of_a_damaged_one_stays(
    starter: Starter, reference: Reference, half: Path
):
    recipe = {**reference.recipe, "checkpoint": {**reference.recipe["checkpoint"], "keep": 1}}
    *_, taken, _, last = checkpoint_folders(half)
    for path in checkpoint_folders(half):
        if path > taken:
            flip(path / "weights.safetensors")
    step = read_checkpoint(taken).step + 1
    assert int(last.name.removeprefix("step-")) > step + 2
    ended = starter.train(recipe, half, resume=True, kill={"after": step, "signal": int(signal.SIGTERM)})
    (outcome,) = ended.of("outcome")
    assert not outcome["finished"]
    found = newest(last.parent, list[str]().append)
    assert found is not None
    assert found.step == outcome["step"]
    assert last in checkpoint_folders(half)  # perhaps it can be read another time
    starter.to_the_end(reference.recipe, half)
    assert fingerprints(half) == reference.prints


def test_fault_05_those_of_later_steps_do_not_count_as_kept(tmp_path: Path):
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step, {"weights": {"one": torch.ones(1)}}, {})
    keep_newest(tmp_path, 2, 3)
    assert [path.name[-1] for path in checkpoints(tmp_path)] == ["2", "3", "4"]


def test_fault_05_two_damaged_in_a_row_fall_back_further(
    starter: Starter, reference: Reference, half: Path, tmp_path: Path
):
    *_, before, last = checkpoint_folders(half)
    flip(last / "weights.safetensors")
    flip(before / "average.safetensors")
    found = newest(last.parent, list[str]().append)
    assert found is not None
    assert found.path == checkpoint_folders(half)[-3]
    starter.to_the_end(reference.recipe, half)
    assert fingerprints(half) == reference.prints


def test_fault_05_when_none_is_whole_nothing_is_guessed_and_nothing_removed(reference: Reference, half: Path):
    there = checkpoint_folders(half)
    for path in there:
        flip(path / "weights.safetensors")
    recipe, folder = recipe_from(reference.recipe), half / "run" / "checkpoints"
    with pytest.raises(CheckpointError, match=f"no checkpoint in {folder} is whole: remove that folder"):
        train(recipe, half, resume=True)
    with pytest.raises(CheckpointError, match="holds a run already"):
        train(recipe, half)
    assert checkpoint_folders(half) == there
    shutil.rmtree(folder)
    assert train(recipe, half).finished


def test_fault_05_when_the_best_weights_are_damaged_the_run_ends_with_the_last_and_says_so(
    starter: Starter, reference: Reference, half: Path
):
    best = half / "run" / "checkpoints" / f"step-{reference.prints['state']['best_step']:08d}"
    assert best in checkpoint_folders(half)[:-1]
    flip(best / "average.safetensors")
    ended = starter.to_the_end(reference.recipe, half)
    assert f"{best / 'average.safetensors'} is damaged" in ended.notes
    assert "the model is made without it" in ended.notes
    last = reference.prints["average"]
    assert fingerprints(half) == {**reference.prints, "model.safetensors": last}
    card, (outcome,) = (half / "README.md").read_text(), ended.of("outcome")
    assert "a moving average of the weights after step 40." in card
    measured = ended.of("evaluate")[-1]
    assert (measured["step"], measured["best"]) == (40, False)
    assert outcome["scores"]["loss"] == measured["loss"]  # of the weights that were written
    assert f"| loss | {measured['loss']:.4f} |" in card


def test_fault_05_the_same_steps_are_told_from_others(reference: Reference, tmp_path: Path):
    """The test of the tests: a record in which one number differs, or a step is missing, is refused."""
    lines = reference.record.read_text().splitlines(keepends=True)
    for spoilt in (
        lines[:-1],
        lines[:7] + lines[8:],
        [*lines[:7], lines[7].replace('"rate": 0.', '"rate": 1.'), *lines[8:]],
        [*lines[:7], lines[6].replace('"step": 6', '"step": 7'), *lines[8:]],
    ):
        (tmp_path / "spoilt").write_text("".join(spoilt))
        with pytest.raises(AssertionError):
            same_steps(tmp_path / "spoilt", reference.record)
    same_steps(reference.record, reference.record)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_fault_05_a_list_without_a_file_that_every_run_needs_is_damage(name: str, tmp_path: Path):
    """A run that went on without the optimizer's memory would be another run."""
    tensors = {"weights": {"a": torch.ones(2)}, "optimizer": {"a/step": torch.ones(1)}}
    for step in (1, 2):
        write_checkpoint(tmp_path, step, tensors, {})
    last = checkpoints(tmp_path)[-1]
    manifest = json.loads((last / "manifest.json").read_text())
    del manifest[name]
    (last / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=f"manifest.json does not list {name}"):
        read_checkpoint(last)
    (last / name).unlink()
    said: list[str] = []
    found = newest(tmp_path, said.append)
    assert found is not None
    assert found.path.name == "step-00000001"
    assert "trying the one before it" in said[0]
