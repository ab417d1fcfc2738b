"""What a run leaves: a log that was cut short breaks nothing, and a run that is done stays as it is."""

import json
import math
import shutil
from pathlib import Path

import pytest
from helpers.faults.killed_runs import Reference, Starter, checkpoint_folders, fingerprints, sha, small, undisturbed

from cutaway.errors import CheckpointError
from cutaway.training.recipe_file import recipe_from
from cutaway.training.run_curves import read_run
from cutaway.training.run_log import RunLog, read_log
from cutaway.training.train import train


def test_a_log_cut_at_any_byte_is_read_up_to_there_and_goes_on_on_a_line_of_its_own(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    events = [{"event": "note", "text": f"größer als {i} → 漢字"} for i in range(2)]
    log = RunLog(path, [])
    for event in events:
        log(event)
    log.close()
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        told = whole[:end].count(b"\n") + (whole[end - 1 : end] == b"}")  # a line without its end is whole, too
        assert list(read_log(path)) == events[:told]
        log = RunLog(path, [])
        log({"event": "end"})
        log.close()
        assert list(read_log(path)) == [*events[:told], {"event": "end"}]


def test_a_run_whose_log_was_cut_short_is_resumed(starter: Starter, reference: Reference, half: Path):
    log = half / "run" / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    starter.to_the_end(reference.recipe, half)
    assert fingerprints(half) == reference.prints
    kinds = [event["event"] for event in read_log(log)]
    assert kinds[-1] == "end"
    assert kinds.count("start") == 2
    assert kinds.count("resume") == 1


@pytest.mark.parametrize("changes", [{}, {"evaluate_patience": 1, "evaluate_every": 4}])
def test_a_run_that_is_done_says_so_and_leaves_its_model_alone(
    changes: dict, starter: Starter, place: Path, tmp_path: Path
):
    reference = undisturbed(starter, tmp_path, small(place, **changes))
    (reference.out / "README.md").write_text("written by hand")
    before = {path: (sha(path), path.stat().st_mtime_ns) for path in files(reference.out)}
    said: list[str] = []
    outcome = train(recipe_from(reference.recipe), reference.out, resume=True, listeners=[told(said)])
    step = reference.prints["state"]["step"]
    assert (outcome.finished, outcome.exit_code, outcome.step) == (True, 0, step)
    assert f"this run is done: its model is in {reference.out}" in said
    assert read_run(reference.out).state == ("stopped early" if changes else "done")
    assert {path: (sha(path), path.stat().st_mtime_ns) for path in files(reference.out)} == before
    with pytest.raises(CheckpointError, match="holds a run already"):
        train(recipe_from(reference.recipe), reference.out)


def test_a_model_folder_that_was_lost_is_made_again(starter: Starter, place: Path, tmp_path: Path):
    reference = undisturbed(starter, tmp_path, small(place))
    for path in reference.out.iterdir():
        if path.is_file():
            path.unlink()
    assert train(recipe_from(reference.recipe), reference.out, resume=True).finished
    assert fingerprints(reference.out) == reference.prints


def test_a_model_that_is_made_again_has_its_own_card(starter: Starter, place: Path, tmp_path: Path):
    """Killed between the model folder and the note that it is complete."""
    reference = undisturbed(starter, tmp_path, small(place))
    (reference.out / "run" / "done.json").unlink()
    (reference.out / "README.md").write_text("of an earlier model")
    said: list[str] = []
    train(recipe_from(reference.recipe), reference.out, resume=True, listeners=[told(said)])
    assert "of an earlier model" not in (reference.out / "README.md").read_text()
    assert not [text for text in said if "is kept" in text]


def test_a_run_that_is_done_without_its_checkpoints_is_not_begun_again(starter: Starter, place: Path, tmp_path: Path):
    reference = undisturbed(starter, tmp_path, small(place))
    shutil.rmtree(reference.out / "run" / "checkpoints")
    refused = starter.train(reference.recipe, reference.out, resume=True)
    assert refused.error.endswith(f"{reference.out} is done and its checkpoints are gone: it cannot go on")
    assert sha(reference.out / "model.safetensors") == reference.prints["model.safetensors"]


def test_a_new_run_in_a_folder_without_checkpoints_is_not_taken_for_the_one_that_was_done_there(
    starter: Starter, place: Path, tmp_path: Path
):
    reference = undisturbed(starter, tmp_path, small(place))
    shutil.rmtree(reference.out / "run" / "checkpoints")
    other = small(place, seed=4)
    refused = starter.train(other, reference.out).error
    assert f"{reference.out} holds a model, and a run needs a folder of its own: choose another --out" in refused
    for path in reference.out.iterdir():
        if path.is_file():
            path.unlink()
    assert starter.train(other, reference.out, kill={"after": 40, "on": "checkpoint", "hold": True}).killed
    assert not (reference.out / "run" / "done.json").exists()
    starter.to_the_end(other, reference.out)
    assert fingerprints(reference.out)["model.safetensors"] != reference.prints["model.safetensors"]


def test_a_run_that_is_done_still_has_the_scores_of_its_model(place: Path, tmp_path: Path):
    """Of the mean of its last checkpoints, which no evaluation on the way measured."""
    recipe = recipe_from(small(place, train_average=3, train_ema=0.0))
    first = train(recipe, tmp_path)
    assert first.scores["loss"] != [e["loss"] for e in read_log(tmp_path / "run" / "log.jsonl") if "best" in e][-1]
    assert train(recipe, tmp_path, resume=True).scores == first.scores


def test_the_log_of_a_run_tells_of_no_other(starter: Starter, place: Path, tmp_path: Path):
    """A run without checkpoints, another in its folder, and one that was refused there."""
    early = small(place, evaluate_every=100, checkpoint_every=100)
    assert starter.train(early, tmp_path, kill={"after": 7, "hold": True}).killed
    recipe = small(place, train_steps=5, evaluate_every=5, name="other")
    assert starter.train(recipe, tmp_path).exit == 0
    refused = starter.train(small(place, seed=4, name="third"), tmp_path, resume=True)
    assert "this is another run" in refused.error
    run = read_run(tmp_path)
    assert (run.start["name"], run.state, sorted(run.steps)) == ("other", "done", [1, 2, 3, 4, 5])


def test_scores_that_are_no_numbers_are_saved_and_come_back(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scores = iter([math.inf, math.nan, 2.0])
    monkeypatch.setattr(
        "cutaway.training.trainer.validate", lambda *given, **more: {"loss": next(scores), "other": math.nan}
    )
    recipe = recipe_from(small(place, train_steps=6, evaluate_every=2, checkpoint_every=2, evaluate_keep_best=False))
    out = tmp_path / "out"
    train(recipe, out)
    states = [json.loads((path / "state.json").read_text()) for path in checkpoint_folders(out)]
    assert [state["scores"]["loss"] for state in states] == ["nan", 2.0]
    assert [state["best"] for state in states] == ["inf", 2.0]
    (out / "run" / "done.json").unlink()
    outcome = train(recipe, out, resume=True)
    assert math.isnan(outcome.scores["other"])
    assert outcome.scores["loss"] == 2.0


@pytest.mark.parametrize("text", ['{"scores": {"loss": "x"}}', '{"scores": {"loss": null}}', '{"scores": []}'])
def test_a_damaged_note_of_the_end_is_named(text: str, place: Path, tmp_path: Path):
    recipe = recipe_from(small(place, train_steps=2))
    train(recipe, tmp_path)
    (tmp_path / "run" / "done.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"done\.json is damaged, remove it: "):
        train(recipe, tmp_path, resume=True)
    (tmp_path / "run" / "done.json").unlink()
    assert train(recipe, tmp_path, resume=True).finished


@pytest.mark.parametrize("text", ["{}", '{"recipe": []}', '{"recipe": 1}', '{"recipe": "ab"}'])
def test_a_damaged_note_of_the_beginning_is_named(text: str, place: Path, tmp_path: Path):
    recipe = recipe_from(small(place, train_steps=2))
    train(recipe, tmp_path)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "done.json").unlink()
    (tmp_path / "run" / "begun.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"begun\.json is damaged, remove it: "):
        train(recipe, tmp_path, resume=True)
    (tmp_path / "run" / "begun.json").unlink()
    assert train(recipe, tmp_path, resume=True).finished


def files(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file() and path.name not in ("log.jsonl", "lock"))


def told(said: list[str]):
    return lambda event: said.append(event.get("text", ""))
