"""`cutaway chomsky`: words of languages, and what small models make of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.inside_commands import data, failed, run, said

from cutaway.before.chomsky import experiment
from cutaway.before.chomsky.languages import LANGUAGES, language_named
from cutaway.pictures import HeatMap, Lines, read_picture

QUICK = ["--length", "4", "--steps", "2", "--words", "4"]


def test_words_are_shown_without_training() -> None:
    found = data("chomsky", "--examples", 4)
    assert list(found) == list(LANGUAGES)
    assert all(language_named(name).accepts(word) for name, words in found.items() for word in words)
    shown = said("chomsky", "--examples", 3, "--language", "crossed")
    assert shown.startswith("crossed    mildly context-sensitive")


def test_a_table_and_a_picture(tmp_path: Path) -> None:
    asked = ["--language", "local", "--language", "dyck-3", "--model", "none", "--model", "lstm", *QUICK]
    found = data("chomsky", *asked, "--out", tmp_path / "a.svg")
    assert found["languages"] == {"local": "regular", "dyck-3": "context-free"}
    assert found["ranges"] == [[1, 4], [5, 8], [9, 12]]
    assert found["steps"]["dyck-3"] == {"none": 2, "lstm": 2}
    assert isinstance(read_picture(tmp_path / "a.svg"), HeatMap)


def test_one_language_by_length(tmp_path: Path) -> None:
    shown = said("chomsky", "--language", "local", "--model", "rotary", *QUICK, "--out", tmp_path / "a.svg")
    assert "% of words right by their length" in shown
    assert "2 steps for each model" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert isinstance(read_picture(tmp_path / "a.svg"), Lines | HeatMap)  # lines, unless all are at one height


def test_all_wrong_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "recognises", lambda model, words: torch.zeros(len(words.ids), dtype=torch.bool))
    shown = said("chomsky", "--language", "local", "--model", "none", *QUICK, "--steps", 1)
    assert shown.count("5–8") == 1
    assert "\n1 step for each model" in shown


@pytest.mark.parametrize("after", [0, 3])
def test_ctrl_c_leaves_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    left = iter(range(after))

    def small_model(*args: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return small(*args)

    small = experiment.small_model
    monkeypatch.setattr(experiment, "small_model", small_model)
    asked = ["--language", "local", "--language", "dyck-1", "--model", "none", "--model", "lstm", *QUICK]
    ran = run("chomsky", *asked, "--out", tmp_path / "a.json")
    assert ran.exit_code == 130
    assert f"interrupted: {after} of 4 models done" in ran.stderr
    assert ("dyck-1" in ran.stdout) == (tmp_path / "a.json").exists() == bool(after)
    if after:
        assert json.loads((tmp_path / "a.json").read_text())["steps"]["dyck-1"] == {"none": 2}
        assert ran.stdout.splitlines()[1].split() == ["length", "none", "lstm"]


def test_what_is_not_there_is_named() -> None:
    assert "no language is called 'x': local" in failed("chomsky", "--language", "x", *QUICK)
    assert "no model is called 'x': none" in failed("chomsky", "--language", "local", "--model", "x", *QUICK)
    assert "abc has no words of 1 to 2 symbols" in failed("chomsky", "--language", "abc", "--length", 2)
    assert "--out" in failed("chomsky", "--out", "a.png")
