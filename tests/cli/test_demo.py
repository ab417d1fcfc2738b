"""`cutaway demo`: four models, each shown as soon as it has answered; one that is missing hides no other."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.masked_models import masked, wordpiece
from helpers.tiny_models import tiny
from PIL import Image
from rich.cells import cell_len
from typer.testing import CliRunner

from cutaway import bundled, classify, cli, load, load_tokenizer, translate
from cutaway.checkpoints import save
from cutaway.cli.demo import BLANK, DIGIT, SENTENCE, STORY, _pixels
from cutaway.tokens.tokenizer_training import train_tokenizer

TEXT = [SENTENCE, STORY, "Ich habe einen Apfel gegessen."]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model in the place of each that comes along."""
    place = tmp_path_factory.mktemp("models")
    both = train_tokenizer(TEXT, kind="bpe", vocab_size=300, tags=["de", "en"])
    size = {"vocab_size": both.vocab_size, "dtype": torch.float32}
    ends = (2, *range(3, 200))  # a model that has little to say
    save(tiny("transformer", start_id=1, end_ids=ends, max_len=64, **size), place / "en-de", both)
    save(tiny("gpt2", max_len=64, **size), place / "books", both)
    save(masked(dtype=torch.float32), place / "cloze", wordpiece())
    save(tiny("vit", image_size=28, n_channels=1, n_classes=10, dtype=torch.float32), place / "digits")
    return place


@pytest.fixture
def run(shelf: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bundled, "HERE", shelf / "none")

    def run_(*args: object, models: Path = shelf, code: int = 0, **env: str) -> str:
        monkeypatch.setenv("CUTAWAY_MODELS", str(models))
        ran = CliRunner().invoke(cli.app, ["demo", *map(str, args)], env=env)
        assert ran.exit_code == code, ran.output
        return ran.stdout if code != 2 else ran.stderr

    return run_


def test_each_model_answers_as_it_does_elsewhere(run, shelf: Path) -> None:
    said = json.loads(run("A dog barks.", "--json"))
    assert list(said) == ["en-de", "books", "cloze", "digits"]
    there, back = said["en-de"]["de"], said["en-de"]["en"]
    model, tokenizer = load(shelf / "en-de"), load_tokenizer(shelf / "en-de")
    assert there["source"] == "A dog barks."
    assert back["source"] == there["text"] == translate(model, tokenizer, "A dog barks.", to="de")
    assert back["text"] == translate(model, tokenizer, there["text"], to="en")
    assert {"alignment", "links"} <= set(there) & set(back)
    assert "".join(word["text"] for word in said["books"]["words"]) == "".join(said["books"]["text"].split())
    assert len(said["books"]["words"][0]["candidates"]) == 5
    assert said["cloze"]["text"] == BLANK
    assert len(said["cloze"]["blanks"][0]) == 5
    assert said["digits"]["label"] == classify(load(shelf / "digits"), DIGIT).label
    assert len(said["digits"]["probabilities"]) == 10


def test_a_pipe_gets_the_same_without_colours(run) -> None:
    data, plain = json.loads(run("--json")), run()
    coloured = run(FORCE_COLOR="1", COLUMNS="80", TERM="xterm-256color", COLORTERM="truecolor")
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", coloured))  # a \r before each turn of the wheel
    for shown in (lines, plain.splitlines()):
        assert [line for line in shown if cell_len(line) > 80] == []
        whole = " ".join(" ".join(shown).split())
        for way in data["en-de"].values():
            assert " ".join(way["text"].split())[:20] in whole
        for part in (STORY, BLANK, *(word["word"] for word in data["cloze"]["blanks"][0])):
            assert part in whole
        for label, chance in data["digits"]["probabilities"].items():
            assert f"{chance:.1%} {label}" in whole
        assert any("▀" in line or "▄" in line for line in shown)
        assert 'cutaway demo "Where is the station?"' in whole


def test_a_model_that_is_missing_or_broken_hides_no_other(run, shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to(shelf / "digits")
    (tmp_path / "books").symlink_to(shelf / "cloze")  # the wrong kind
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "config.json").write_text("{")
    plain = run(models=tmp_path, code=1)
    assert "only a language model tells a story" in " ".join(plain.split())
    assert "is not valid JSON" in " ".join(plain.split())
    assert "▀" in plain
    assert "cutaway classify" in plain
    assert "cutaway generate" not in plain  # what cannot be done is not advised
    said = json.loads(run("--json", models=tmp_path, code=1))
    assert [name for name, answer in said.items() if "problem" in answer] == ["books", "cloze"]
    assert [*said] == ["books", "cloze", "digits"]


def test_what_is_not_here_is_no_failure_unless_nothing_is(run, shelf: Path, tmp_path: Path) -> None:
    assert "none of the demo's models is here: CUTAWAY_MODELS says where to look" in run(models=tmp_path, code=2)
    (tmp_path / "digits").symlink_to(shelf / "digits")
    plain = run(models=tmp_path)
    assert "1  Recognise a digit" in plain
    assert "cutaway translate" not in plain


def test_a_folder_here_of_the_same_name_is_not_asked(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    assert "problem" not in run("--json")


def test_wrong_words_are_refused(run) -> None:
    assert "there is no word in this sentence" in run("  ", code=2)
    assert "--steps is for --reverse" in run("--steps", 3, code=2)


def test_the_digit_is_a_png_that_anyone_can_read_and_that_needs_no_pillow() -> None:
    with Image.open(DIGIT) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "L", (28, 28))
        assert (np.asarray(image) == _pixels(DIGIT.read_bytes())).all()
