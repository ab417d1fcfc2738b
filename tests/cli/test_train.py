"""`cutaway train`, `runs` and `plot`: a recipe becomes a folder, a line in a list, and a picture."""

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.toy_recipes import KINDS, toy, write_files
from typer.testing import CliRunner, Result

from cutaway import cli
from cutaway.checkpoints import load
from cutaway.cli.train import Display, amount, duration
from cutaway.training.presets import recipe_for
from cutaway.training.recipe_file import to_toml
from cutaway.training.train import train


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


def test_the_first_step_is_told_at_once_and_how_long_the_rest_takes(recipe: Path) -> None:
    said = cutaway("train", recipe, "--out", "a", "--set", "train.steps=30", "--set", "evaluate.log=10").output
    steps = [line for line in said.splitlines() if line.startswith("step ") and " rate " in line]
    assert [line.partition("  ")[0] for line in steps] == ["step 1/30", "step 10/30", "step 20/30", "step 30/30"]
    assert all(re.search(r"  \d+ s left  loss .* tok/s  \d+% of peak$", line) for line in steps)
    assert " 0 s left " in steps[-1]


def test_one_step_is_not_called_steps(recipe: Path) -> None:
    said = cutaway("train", recipe, "--out", "a", "--set", "train.steps=1").output
    assert "108 examples, 12 steps an epoch" in " ".join(said.split())
    assert "done after 1 step, " in said


def test_pictures_are_counted_as_pictures(recipe: Path, tmp_path: Path) -> None:
    pictures = to_toml(toy("images", tmp_path / "data"))
    (tmp_path / "pictures.toml").write_text(pictures, encoding="utf-8")
    said = cutaway("train", "pictures.toml", "--out", "models/pictures").output
    assert " pictures/s " in said
    assert "tok/s" not in said
    assert cutaway("train", recipe, "--out", "models/text").exit_code == 0
    rows = cutaway("runs").output.splitlines()
    assert [("pictures/s" in row, "tok/s" in row) for row in rows if "models/" in row] == [(True, False), (False, True)]
    assert "| steps, pictures seen | 4, 32 |" in (tmp_path / "models" / "pictures" / "README.md").read_text()


def test_runs_fit_eighty_columns_with_every_word_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = {"event": "start", "name": "a", "parameters": 123_456_789, "steps": 100_000, "step": 0}
    step = {"event": "step", "step": 99_990, "loss": 12.34567, "tokens_per_second": 123_456.7, "seconds": 123_456.7}
    log = tmp_path / "models" / "a-long-name-of-a-run" / "run" / "log.jsonl"
    events = [start, step, {"event": "evaluate", "step": 9, "loss": 2.34567}, {"event": "end", "reason": "interrupted"}]
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(map(json.dumps, events)) + "\n")
    nothing = tmp_path / "models" / "none" / "run" / "log.jsonl"
    nothing.parent.mkdir(parents=True)
    nothing.write_text(json.dumps(start) + "\n")  # never made a step
    said = cutaway("runs", "models", "models/a-long-name-of-a-run").output
    assert max(map(len, said.splitlines())) <= 80
    for word in ("interrupted", "123 M", "99,990/100,000", "12.35", "2.346", "123 k tok/s", "34.3 h"):
        assert said.count(word) == 1
    assert "none" not in said
    assert len(json.loads(cutaway("runs", "models", "--json").stdout)) == 1
    assert "no runs in models/none that made a step" in cutaway("runs", "models/none").output


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


# --- what comes next --------------------------------------------------------------------------------------------------


def next_commands(output: str) -> list[list[str]]:
    """The commands that are printed at the end."""
    lines = output.partition("next:\n")[2].splitlines()
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_for_a_new_model_are_printed_and_run(kind: str, tmp_path: Path, recipe: Path) -> None:
    values = toy(kind, tmp_path / "data")  # type: ignore[arg-type]
    Path("next.toml").write_text(to_toml(values), encoding="utf-8")
    ended = cutaway("train", "next.toml", "--out", "a model", "--set", "train.steps=1")
    assert ended.exit_code == 0, ended.output
    commands = next_commands(ended.output)
    assert [command[0] for command in commands[1:]] == ["evaluate"] * (kind != "spans") + ["inspect"] * (kind != "tag")
    train, root = list(values.data.train), tmp_path / "data"
    others = [f"other{Path(name).suffix}" for name in train]
    data = {",".join(others): ",".join(str(root / name) for name in train), "OTHER": str(root / train[0])}
    data |= dict(zip(others, (str(root / name) for name in train), strict=True))
    if kind == "images":
        image(Path("IMAGE.png"))
    for command in commands:
        ended = cutaway(*[data.get(word, word) for word in command])
        nothing = kind == "spans" and "its translation has no tokens" in ended.output  # of one step
        assert ended.exit_code == 0 or nothing, (command, ended.output)


def image(path: Path) -> None:
    from PIL import Image

    Image.new("L", (8, 8)).save(path)


def test_a_translator_of_several_directions_is_asked_for_one(recipe: Path, tmp_path: Path) -> None:
    values = toy("translate", tmp_path / "data", data={"directions": ["en-de", "de-en"]}, train={"steps": 1})
    Path("both.toml").write_text(to_toml(values), encoding="utf-8")
    commands = next_commands(cutaway("train", "both.toml", "--out", "both").output)
    assert [command[-2:] for command in commands[:2]] == [["--to", "de"]] * 2
    for command in (commands[0], commands[2]):
        assert cutaway(*command).exit_code == 0


def test_a_run_goes_on_from_its_folder_alone(recipe: Path, tmp_path: Path) -> None:
    """Its recipe is there from the start: nothing needs to be said again."""
    write_files(tmp_path / "data")
    words = ("data/text.txt", "--out", "one", "--set", "model.d_model=16", "--set", "model.n_heads=2")
    short = [*words, "--set", "train.steps=4", "--set", "train.tokens=256", "--set", "data.seq_len=16"]
    assert cutaway("train", *short).exit_code == 0
    whole = (tmp_path / "one" / "model.safetensors").read_bytes()
    shutil.rmtree("one")

    stopped = StopAfter(2)
    with pytest.raises(KeyboardInterrupt):
        train(recipe_for([Path("data/text.txt")], short[4::2]), "one", checkpoint={"every": 2}, listeners=[stopped])
    assert Path("one/run/recipe.toml").exists()
    ended = cutaway("train", "--resume", "--out", "one")
    assert ended.exit_code == 0, ended.output
    assert "continuing from step 2" in ended.output
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == whole
    assert tomllib.loads(Path("one/recipe.toml").read_text())["checkpoint"]["every"] == 2


class StopAfter:
    """Stops a run when a step has been saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and event["step"] == self.step:
            raise KeyboardInterrupt


def test_the_files_of_a_run_may_be_named_again(recipe: Path, tmp_path: Path) -> None:
    """What was set when it began is in its recipe; other files are another run."""
    write_files(tmp_path / "data")
    small = ["--set", "train.steps=2", "--set", "model.d_model=16", "--set", "model.n_heads=2"]
    assert cutaway("train", "data/text.txt", "--out", "one", *small).exit_code == 0
    assert "this run is done" in cutaway("train", "data/text.txt", "--resume", "--out", "one").output
    changed = cutaway("train", "data/text.txt", "--resume", "--out", "one", "--set", "train.steps=3")
    assert "train.steps: 2 → 3" in changed.stderr
    Path("data/other.txt").write_text("other words\n" * 500)
    assert "this is another run" in cutaway("train", "data/other.txt", "--resume", "--out", "one", *small).stderr


def test_a_run_from_before_recipes_were_written_at_the_start_goes_on_too(recipe: Path) -> None:
    assert cutaway("train", recipe, "--out", "one").exit_code == 0
    Path("one/run/recipe.toml").unlink()
    assert "this run is done" in cutaway("train", "--resume", "--out", "one").output


def test_without_a_recipe_files_or_a_run_there_is_nothing_to_train(recipe: Path) -> None:
    assert "name a recipe (.toml) or files to train on" in cutaway("train", "--out", "one").stderr
    assert "holds no run" in cutaway("train", "--resume", "--out", "one").stderr


def test_the_time_left_is_that_of_the_steps_that_this_run_has_made(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A run that goes on from step 100 has made 10 steps at step 110, whatever the run before it took."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for first, step, steps, seconds, left in (
        (0, 10, 110, 10, "100 s"), (100, 110, 200, 10, "90 s"), (100, 200, 200, 50, "0 s"), (50, 60, 660, 10, "10 min"),
    ):  # fmt: skip
        shown = Display(quiet=False)
        start = {"name": "a", "parameters": 1, "machine": "m", "examples": 1, "steps_per_epoch": 1, "unit": "tokens"}
        shown({"event": "start", "step": first, "steps": steps, **start})
        now += seconds
        told = {"loss": 1.0, "rate": 1.0, "tokens_per_second": 1.0, "share_of_peak": 0.1, "skipped": 0}
        shown({"event": "step", "step": step, "steps": steps, **told})
        assert f"step {step}/{steps}  {left} left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.6, "1 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (12_345, "3.4 h")],
)
def test_how_long_is_said_in_seconds_minutes_or_hours(seconds: float, said: str) -> None:
    assert duration(float(seconds)) == said


@pytest.mark.parametrize(
    ("n", "said"),
    [(0, "0"), (999, "999"), (1000, "1 k"), (45_678, "45.7 k"), (1e6, "1 M"), (3.21e6, "3.21 M"), (2e9, "2 G")],
)
def test_large_numbers_are_said_with_three_digits(n: float, said: str) -> None:
    assert amount(float(n)) == said
