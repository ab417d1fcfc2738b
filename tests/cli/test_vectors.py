"""`cutaway vectors`: what is learnt is what the model learns, other commands read it, and too little is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from cutaway import cli
from cutaway.before.options import SkipGramOptions
from cutaway.before.units import read_ids, units_of
from cutaway.before.vectors.skip_gram import train_skip_gram

TEN = "check whether the battery ran down please and then stop"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ten.txt").write_text(TEN)


def run(*args: object) -> Result:
    return CliRunner().invoke(cli.app, list(map(str, args)))


def answered(*args: object) -> Any:
    ran = run(*args, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def refused(*args: object) -> str:
    ran = run("vectors", *args)
    assert ran.exit_code == 2, ran.output
    return ran.stderr


def test_every_option_reaches_the_model():
    options = {"d": 7, "window": 2, "negatives": 3, "min_count": 1, "sample": 0.1, "rate": 0.3, "epochs": 2, "seed": 5}
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    Path("text.txt").write_text(f"{TEN}\n{TEN[:30]}")
    found = answered("vectors", "text.txt", "--split", "line", "--out", "v", *given)
    cut = units_of("words")
    text = read_ids(cut, [Path("text.txt")], split="line")
    model = train_skip_gram(text.ids, len(cut.names), SkipGramOptions(**options), end=cut.end)
    assert np.array_equal(np.load("v/vectors.npy"), model.vectors)
    assert Path("v/words.txt").read_text().split() == [cut.names[i] for i in model.tokens]
    assert (found["texts"], found["d"], found["words"]) == (2, 7, len(model.tokens))


def test_the_vectors_are_asked_by_other_commands():
    answered("vectors", "ten.txt", "--out", "v")
    near = answered("embed", "--model", "v", "--near", "battery", "--k", 20)
    assert {word for word, _ in near["found"]} == set(TEN.split()) - {"battery"}
    assert len(answered("embed", "--model", "v", "--analogy", "ran", "down", "check", "--k", 3)["found"]) == 3
    Path("questions-words.txt").write_text(": all\nran down check please\nrun down check please\n")
    assert answered("evaluate", "v", "questions-words.txt")["n"] == 1


def test_ten_words_are_enough_and_that_it_is_little_is_said():
    shown = run("vectors", "ten.txt", "--out", "v").stdout
    assert "10 words in 1 text, 3 times" in shown
    assert "too little to mean much: below 1,000,000 words" in shown
    assert "cutaway embed --model v --near check" in shown
    Path("one.txt").write_text("one one")
    assert "1 word stands in the text at least --min-count 1 time, and two are" in refused("one.txt", "--out", "w")
    assert "no word stands in the text at least --min-count 2 times" in refused(
        "ten.txt", "--out", "w", "--min-count", 2
    )
    assert not Path("w").exists()
    shown = run("vectors", "ten.txt", "--out", "w", "--epochs", 1, "--d", 1).stdout
    assert "in 1 text, 1 time in" in shown
    assert "10 words, 1 number each" in shown


def test_what_cannot_be_written_is_refused_before_anything_is_read():
    for out in ("ten.txt/x", "ten.txt/x/y", "x" * 300):
        assert refused("missing.txt", "--out", out).startswith(f"error: {out} cannot be written: ")
    assert "missing.txt cannot be read" in refused("missing.txt", "--out", "new/folder")
    assert not Path("new").exists()


def test_wrong_input_is_named():
    Path("empty.txt").write_text("")
    Path("zeros.bin").write_bytes(bytes(100))
    Path("odd.bin").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    for name, said in (("empty.txt", "is empty"), ("zeros.bin", "is binary"), ("odd.bin", "not UTF-8")):
        assert refused(name, "--out", "v").startswith(f"error: {name}")
        assert said in refused(name, "--out", "v")
    assert "vectors are of words" in refused("ten.txt", "--out", "v", "--unit", "characters")
    assert "--rate 0.0" in refused("ten.txt", "--out", "v", "--rate", 0)
    assert "--rate nan" in refused("ten.txt", "--out", "v", "--rate", "nan")
    assert "is a file" in refused("ten.txt", "--out", "ten.txt")
    assert not Path("v").exists()


def test_what_is_there_is_not_lost():
    answered("vectors", "ten.txt", "--out", "v")
    before = np.load("v/vectors.npy")
    assert "replace the word vectors in it with --force" in refused("ten.txt", "--out", "v")
    answered("vectors", "ten.txt", "--out", "v", "--force", "--seed", 1)
    assert not np.array_equal(np.load("v/vectors.npy"), before)
    Path("v/thesis.txt").write_text("mine")
    assert "has other files (thesis.txt)" in refused("ten.txt", "--out", "v", "--force")
