"""`cutaway train`, `runs` and `plot`: a recipe becomes a folder, a line in a list, and a picture."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from toy import toy
from typer.testing import CliRunner, Result

from cutaway import cli
from cutaway.checkpoints import load
from cutaway.training.recipe import to_toml


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(toy("lines", tmp_path / "data", name="<toy>")), encoding="utf-8")  # type: ignore[arg-type]
    return path


def cutaway(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_train_runs_and_plot(recipe: Path, tmp_path: Path) -> None:
    ended = cutaway("train", recipe, "--out", "models/one", "--set", "train.steps=3", "--set", "model.d_model=24")
    assert ended.exit_code == 0, ended.output
    assert "<toy>: " in ended.output
    assert "done after 3 steps" in ended.output
    assert "best so far" in ended.output
    model = load(tmp_path / "models" / "one")
    assert model.config.d_model == 24  # type: ignore[attr-defined]
    said = json.loads(cutaway("train", recipe, "--out", "models/two", "--json").stdout)
    assert (said["step"], said["finished"], said["exit_code"], said["out"]) == (4, True, 0, "models/two")

    listed = json.loads(cutaway("runs", "models", "--json").stdout)
    assert [(run["folder"], run["state"], run["step"], run["steps"]) for run in listed] == [
        ("models/one", "done", 3, 3),
        ("models/two", "done", 4, 4),
    ]
    assert listed[1]["best_loss"] == said["scores"]["loss"]
    table = cutaway("runs", "models").output
    assert "models/one" in table
    assert "3/3" in table

    drawn = cutaway("plot", "models/one", "models/two", "--out", "both.svg")
    assert (drawn.exit_code, drawn.output) == (0, "both.svg\n")
    picture = ElementTree.parse(tmp_path / "both.svg")
    assert [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")].count("one") == 1
    said = json.loads(cutaway("plot", "models/one", "--metric", "perplexity", "--json").stdout)
    assert said["metric"] == "perplexity"
    assert (tmp_path / "curve.svg").exists()


def test_what_goes_wrong_is_said_in_a_line(recipe: Path) -> None:
    for words, said in {
        ("train", recipe, "--out", "a", "--set", "train.stpes=3"): "unknown key 'stpes' in [train]",
        ("train", "none.toml", "--out", "a"): "none.toml cannot be read",
        ("train", recipe, "--out", "a", "--resume"): "without --resume",
        ("runs", "none"): "none is not a folder",
        ("plot", "data"): "holds no run",
    }.items():
        ended = cutaway(*words)
        assert ended.exit_code == 2
        assert said in ended.stderr
    assert "no runs in" in cutaway("runs", "data").output


def test_a_run_is_not_overwritten_by_accident(recipe: Path) -> None:
    assert cutaway("train", recipe, "--out", "one", "--set", "train.steps=2").exit_code == 0
    again = cutaway("train", recipe, "--out", "one", "--set", "train.steps=2")
    assert again.exit_code == 2
    assert "continue it with --resume" in again.stderr
