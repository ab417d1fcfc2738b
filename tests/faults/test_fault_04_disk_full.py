"""Fault 4: the disk is full while a checkpoint is saved: the error names the path and the need, the older checkpoint is
whole, and the run goes on elsewhere."""

import shutil
from pathlib import Path

import pytest
from helpers.faults.killed_runs import Ended, Reference, Starter, checkpoint_folders, fingerprints, may_mount

from cutaway.training.checkpoint import newest


def size_of(folder: Path) -> int:
    """Kilobytes on a disk whose blocks have four."""
    return sum(-(-path.stat().st_size // 4096) * 4 for path in folder.rglob("*") if path.is_file())


def refused(ended: Ended, out: Path, before: list[Path]) -> None:
    assert ended.exit == 2
    assert f"CheckpointError: the checkpoint {out}/run/checkpoints/step-00000030 could not be written" in ended.error
    assert "it needs 0.1 MB" in ended.error
    assert f"{before[-1].name} is whole" in ended.error
    assert "continue with --resume" in ended.error


def goes_on(starter: Starter, reference: Reference, folder: Path, before: list[Path]) -> None:
    assert [path.name for path in checkpoint_folders(folder)] == [path.name for path in before]
    assert not list((folder / "run" / "checkpoints").glob(".*"))
    found = newest(folder / "run" / "checkpoints", pytest.fail)
    assert found is not None
    assert found.path.name == before[-1].name
    starter.to_the_end(reference.recipe, folder)
    assert fingerprints(folder) == reference.prints


@pytest.mark.skipif(not may_mount(), reason="this machine lets nobody mount a small disk; the limit below stands in")
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_fault_04_a_full_disk_is_named_and_the_run_goes_on_elsewhere(
    share: float, starter: Starter, reference: Reference, half: Path, tmp_path: Path
):
    before = checkpoint_folders(half)
    room = size_of(half) + round(share * size_of(before[-1]))
    ended = starter.train(reference.recipe, half, resume=True, disk=room, copy=tmp_path / "elsewhere")
    refused(ended, half, before)
    goes_on(starter, reference, tmp_path / "elsewhere", before)


def test_fault_04_a_file_that_may_not_grow_is_the_same(
    starter: Starter, reference: Reference, half: Path, tmp_path: Path
):
    before = checkpoint_folders(half)
    most = (before[-1] / "optimizer.safetensors").stat().st_size - 1
    ended = starter.train(reference.recipe, half, resume=True, largest_file=most)
    refused(ended, half, before)
    goes_on(starter, reference, Path(shutil.move(half, tmp_path / "elsewhere")), before)


def test_fault_04_a_log_that_cannot_be_written_does_not_stop_the_run(
    starter: Starter, reference: Reference, half: Path
):
    log = half / "run" / "log.jsonl"
    log.unlink()
    log.symlink_to("/dev/full")
    ended = starter.train(reference.recipe, half, resume=True)
    assert ended.exit == 0
    assert ended.notes.count(f"{log} cannot be written") == 1
    assert fingerprints(half) == reference.prints
