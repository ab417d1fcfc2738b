"""Fault 9: data, tokenizer, seed, model or schedule changed under --resume: refused, saying what differs."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.faults.killed_runs import Reference, Starter, checkpoint_folders, fingerprints, sha, small

from cutaway.errors import ConfigError
from cutaway.training.recipe_file import recipe_from
from cutaway.training.resume import refuse_another_run
from cutaway.training.train import train

CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"seed": 4}, "seed: 2 → 4"),
    "model": ({"model_d_ff": 48}, "d_ff: 32 → 48"),
    "dropout": ({"model_dropout": 0.1}, "dropout: 0.2 → 0.1"),
    "schedule": ({"schedule_warmup": 5}, "schedule.warmup: 4 → 5"),
    "steps": ({"train_steps": 50}, "train.steps: 40 → 50"),
    "rate": ({"optimizer_rate": 0.2}, "optimizer.rate: 0.1 → 0.2"),
    "batch": ({"train_rows": 8}, "train.rows: 4 → 8"),
    "length": ({"data_seq_len": 16}, "data.seq_len: 32 → 16"),
    "average": ({"train_ema": 0.8}, "train.ema: 0.9 → 0.8"),
    "tokenizer": ({"tokenizer_lowercase": True}, "tokenizer.lowercase: false → true"),
}
FREE = {"checkpoint_keep": 3, "evaluate_log": 3, "train_workers": 1, "name": "another", "evaluate_samples": 2}


@pytest.mark.parametrize("what", CHANGED)
def test_fault_09_another_recipe_is_refused_saying_what_differs(what: str, place: Path, half: Path):
    changes, said = CHANGED[what]
    before = {path: sha(path) for path in half.rglob("*.safetensors")}
    with pytest.raises(ConfigError, match="this is another run than the one in") as refused:
        train(recipe_from(small(place, **changes)), half, resume=True)
    assert said in str(refused.value)
    assert {path: sha(path) for path in half.rglob("*.safetensors")} == before
    train(recipe_from(small(place)), half, resume=True)  # put back as it was, it goes on


def test_fault_09_of_many_differences_five_are_named(place: Path, half: Path):
    changes = {name: value for changed, _ in CHANGED.values() for name, value in changed.items()}
    with pytest.raises(ConfigError) as refused:
        train(recipe_from(small(place, **changes)), half, resume=True)
    said = str(refused.value)
    assert said.count(" → ") == 5
    assert re.search(r"; and \d+ more\. Undo the change", said)


def test_fault_09_other_data_is_refused(half: Path, place: Path, tmp_path: Path):
    text = (place / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(text.replace("cat", "act", 1))  # as long, of the same characters
    with pytest.raises(ConfigError, match=r"this is another run than the one in [^:]*: the data\. Undo the change"):
        train(recipe_from(small(tmp_path)), half, resume=True)
    (tmp_path / "text.txt").write_text(text)  # the same text in another place is the same
    assert train(recipe_from(small(tmp_path)), half, resume=True).finished


def test_fault_09_another_tokenizer_in_the_same_file_is_refused(starter: Starter, place: Path, tmp_path: Path):
    from cutaway.tokens.tokenizer_training import train_tokenizer

    recipe = small(place, tokenizer={"file": str(tmp_path / "tokenizer.json")})
    train_tokenizer([(place / "text.txt").read_text()], kind="char").save(tmp_path)
    assert starter.train(recipe, tmp_path / "out", kill={"after": 20, "hold": True}).killed
    assert checkpoint_folders(tmp_path / "out")
    train_tokenizer([(place / "text.txt").read_text() + "!"], kind="char").save(tmp_path)
    with pytest.raises(ConfigError, match="the tokenizer"):
        train(recipe_from(recipe), tmp_path / "out", resume=True)


def test_fault_09_what_changes_no_weight_may_change(starter: Starter, reference: Reference, place: Path, half: Path):
    ended = starter.train(small(place, **FREE), half, resume=True)
    assert ended.exit == 0, ended.error
    found = fingerprints(half)
    assert len(found["checkpoints"]) > len(reference.prints["checkpoints"])
    for name in ("weights", "optimizer", "average", "model.safetensors"):
        assert found[name] == reference.prints[name]


WAS: dict[str, Any] = {
    "recipe": {"seed": 1, "name": "a", "train": {"steps": 4, "workers": 1}},
    "data": "d1",
    "tokenizer": "t1",
    "model": {"family": "gpt", "d_model": 16},
    "world": 1,
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": WAS["recipe"] | {"seed": 2}}, "seed: 1 → 2"),
        ({"recipe": WAS["recipe"] | {"train": {"steps": 5, "workers": 1}}}, "train.steps: 4 → 5"),
        ({"recipe": {"seed": 1, "name": "a"}}, 'train: {"steps": 4, "workers": 1} → null'),
        ({"data": "d2"}, "the data"),
        ({"tokenizer": "t2"}, "the tokenizer"),
        ({"tokenizer": None, "data": "d2"}, "the data; the tokenizer"),
        ({"model": {"family": "gpt", "d_model": 32}}, "model.d_model: 16 → 32"),  # a start folder whose model changed
        ({"world": 2}, "processes: 1 → 2"),
        ({"recipe": {"seed": 1, "name": "b", "train": {"steps": 4, "workers": 3}}}, None),
        ({}, None),
    ],
)
def test_fault_09_each_thing_that_a_run_depends_on_is_looked_at_alone(changes: dict[str, Any], said: str | None):
    if said is None:
        refuse_another_run(WAS, WAS | changes, Path("out"))
        return
    with pytest.raises(ConfigError, match=f"the one in out: {re.escape(said)}\\. Undo the change"):
        refuse_another_run(WAS, WAS | changes, Path("out"))
