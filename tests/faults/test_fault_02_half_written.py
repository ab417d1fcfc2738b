"""Fault 2: SIGKILL while saving, and the checkpoint before it loads; the half-written one is ignored."""

import shutil
from pathlib import Path

import torch
from helpers.faults.forks import TENSORS
from helpers.faults.killed_runs import Ended, Starter, checkpoint_folders

from cutaway.training.checkpoint import checkpoints, clean, newest, read_checkpoint, write_checkpoint


def older(folder: Path) -> Path:
    """A folder of checkpoints that holds one, of step 1."""
    return write_checkpoint(folder, 1, {name: {"one": torch.ones(8)} for name in TENSORS}, {"tokens": 1}).parent


def killed_at(starter: Starter, folder: Path, call: int) -> Ended:
    return starter.run("save", folder=folder, call=call)


def test_fault_02_killed_at_any_call_that_reaches_the_disk_a_whole_checkpoint_is_there(
    starter: Starter, tmp_path: Path
):
    template = older(tmp_path / "template")
    whole = killed_at(starter, Path(shutil.copytree(template, tmp_path / "whole")), -1)
    (made,) = (event["made"] for event in whole.of("calls"))
    renamed = made.index("rename write_checkpoint")
    assert made[-1] == "rmdir keep_newest"
    for call, name in enumerate(made):
        folder = Path(shutil.copytree(template, tmp_path / str(call)))
        assert killed_at(starter, folder, call).killed
        complaints: list[str] = []
        found = newest(folder, complaints.append)
        assert found is not None, name
        assert found.step == (1 if call <= renamed else 2), name
        assert not complaints, "a checkpoint that can be seen is whole"
        assert [read_checkpoint(path).step for path in checkpoints(folder)][-1] == found.step
        clean(folder)
        assert sorted(path.name for path in folder.iterdir()) == [path.name for path in checkpoints(folder)]
        shutil.rmtree(folder)


def test_fault_02_a_half_written_checkpoint_is_ignored_and_swept_away(tmp_path: Path):
    folder = older(tmp_path / "checkpoints")
    for name in (f".step-00000002.{'0a' * 16}", f".old-{'1b' * 16}"):
        shutil.copytree(folder / "step-00000001", folder / name)
    shutil.copytree(folder / "step-00000001", folder / "step-00000003")
    (folder / "step-00000003" / "manifest.json").unlink()  # which is written last
    found = newest(folder)
    assert found is not None
    assert found.path.name == "step-00000001"
    clean(folder)
    assert {path.name for path in folder.iterdir()} == {"step-00000001", "step-00000003"}


def test_fault_02_only_what_a_run_wrote_is_swept_away(tmp_path: Path):
    """--out may be a folder that holds other things."""
    for name in (".old-photos", ".step-by-step", ".steps"):
        (tmp_path / name).mkdir()
    (tmp_path / ".notes.tmp").touch()
    before = sorted(tmp_path.iterdir())
    clean(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_fault_02_what_a_killed_run_left_goes_when_it_is_resumed(starter: Starter, reference, half: Path):
    run = half / "run" / "checkpoints"
    shutil.copytree(checkpoint_folders(half)[-1], run / f".step-00000099.{'00ff' * 8}")
    (half / f".model.safetensors.{'0' * 32}.tmp").write_bytes(b"half a model")
    starter.to_the_end(reference.recipe, half)
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []
    assert [path.name for path in half.iterdir() if path.name.startswith(".")] == []
