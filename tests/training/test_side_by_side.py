"""Trainings side by side (recipes/side_by_side.py): what is done is left alone, what was stopped is no result."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
WRITE = "import pathlib, sys; folder = pathlib.Path(sys.argv[1]); folder.mkdir(); (folder / 'done').write_text('new')"


@pytest.fixture
def recipes(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    import glue
    import side_by_side

    return SimpleNamespace(glue=glue, side_by_side=side_by_side)


def test_what_is_done_is_left_alone_and_a_failure_is_told(recipes, tmp_path, capsys):
    job, run = recipes.side_by_side.Job, recipes.side_by_side.run
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "done").write_text("old")
    run([job(tmp_path / name, "done", ["-c", WRITE, str(tmp_path / name)]) for name in "abc"], at_once=2)
    assert [(tmp_path / name / "done").read_text() for name in "abc"] == ["old", "new", "new"]
    assert sorted(capsys.readouterr().out.split()) == ["b", "c", "done:", "done:"]
    failing = [job(tmp_path / name, "done", ["-c", "raise SystemExit('the disk is full')"]) for name in "de"]
    with pytest.raises(SystemExit, match=r"d ended with 1: .*d\.log says why"):
        run(failing, at_once=1)
    assert (tmp_path / "d.log").read_text() == "the disk is full\n"
    assert not (tmp_path / "e.log").exists()


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_was_stopped_is_no_result_and_goes_on(recipes, tmp_path, monkeypatch, begun):
    asked = []

    def train(recipe, out, *, resume):
        asked.append(resume)
        return SimpleNamespace(finished=False, exit_code=0, scores={}, seconds=1.0)

    monkeypatch.setattr("cutaway.training.train.train", train)
    if begun:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "log.jsonl").write_text("")
    with pytest.raises(SystemExit) as stopped:
        recipes.side_by_side.trained(None, tmp_path)
    assert stopped.value.code == 1
    assert asked == [begun]


def test_glue_leaves_out_what_a_decoder_lacks_and_nothing_else(recipes, tmp_path, monkeypatch):
    import cutaway
    from cutaway.tokens import train_tokenizer

    given = []

    def trained(recipe, out):
        given.append(recipe.model.changes)
        out.mkdir()
        return SimpleNamespace(scores={"accuracy": 0.5}, seconds=1.0)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(recipes.glue, "trained", trained)
    tokenizer = train_tokenizer(["a dog"], kind="byte")
    model = cutaway.build("lstm", vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, seed=0)
    cutaway.save(model, tmp_path / "lstm", tokenizer=tokenizer)
    recipes.glue.one("rte", tmp_path / "lstm", tmp_path / "out", ["model.dropuot=0.9"])
    assert given == [{"dropout": 0.1, "dropuot": 0.9}]  # the misspelt one is refused by the run
    facts = json.loads((tmp_path / "out" / recipes.glue.DONE).read_text())
    assert (facts["task"], facts["start"], facts["scores"]) == ("rte", "lstm", {"accuracy": 0.5})
