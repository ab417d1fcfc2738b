"""`cutaway classify`: texts, pairs, words, numbers and pictures."""

import json
from pathlib import Path

import numpy as np
import torch
from helpers.classifiers import PAIRS, SENTENCES, classifier, wordpiece
from helpers.tiny_models import tiny
from PIL import Image
from typer.testing import CliRunner

from cutaway import classify, cli
from cutaway.checkpoints import save
from cutaway.model.model import Model


def run(folder: Path, *args: object, stdin: str | None = None) -> str:
    ran = CliRunner().invoke(cli.app, ["classify", "--model", str(folder), *map(str, args)], input=stdin)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def kept(model: Model, folder: Path) -> Model:
    save(model, folder, wordpiece())
    return model


def test_texts_and_pairs(tmp_path: Path) -> None:
    model = kept(classifier(labels=("yes", "no", "maybe"), dtype=torch.float32), tmp_path)
    lines = [*SENTENCES, *map("\t".join, PAIRS)]
    said = [json.loads(line) for line in run(tmp_path, "--json", stdin="\n".join(lines)).splitlines()]
    expected = classify(model, wordpiece(), [*SENTENCES, *PAIRS])
    assert [one["label"] for one in said] == [one.label for one in expected]
    assert [one["input"] for one in said] == lines
    assert "%" in run(tmp_path, SENTENCES[0], "--precision", "bf16")
    pair = "\t".join(PAIRS[0])
    lines = run(tmp_path, stdin=f"{SENTENCES[0]}\n\n{pair}\n").split("\n")
    first, second = expected[0], expected[len(SENTENCES)]
    assert lines == [f"{first.label}\t{first.probability:.4f}", "", f"{second.label}\t{second.probability:.4f}", ""]
    assert run(tmp_path, "--json", stdin="\n") == '{"input": ""}\n'
    (tmp_path / "recipe.toml").touch()  # trained here: special tokens by our rule, which is theirs for [CLS] and [SEP]
    assert json.loads(run(tmp_path, SENTENCES[0], "--json"))["label"] == expected[0].label


def test_a_file_s_name_is_pointed_out_where_texts_are_read(tmp_path: Path) -> None:
    kept(classifier(dtype=torch.float32), tmp_path / "texts")
    file = tmp_path / "reviews.txt"
    file.write_text("a man")
    args = ["classify", "--model", str(tmp_path / "texts")]
    assert f"hint: {file} is a file" in CliRunner().invoke(cli.app, [*args, str(file)]).stderr
    assert CliRunner().invoke(cli.app, [*args, "a man", "x" * 300, "--cut", "8"]).stderr == ""


def test_numbers_and_tags(tmp_path: Path) -> None:
    model = kept(tiny("bert", task="regress", dtype=torch.float32), tmp_path / "number")
    value = json.loads(run(tmp_path / "number", "a man", "--json"))["value"]
    assert value == classify(model, wordpiece(), "a man")
    assert f"{value:.4f}" in run(tmp_path / "number", "a man")
    kept(tiny("bert", task="tag", n_classes=2, labels=("O", "B"), dtype=torch.float32), tmp_path / "tag")
    tags = json.loads(run(tmp_path / "tag", "the dogs", "--json"))["tags"]
    assert [tag["word"] for tag in tags] == ["the", "dogs"]
    assert "dogs" in run(tmp_path / "tag", "the dogs", "a man")
    assert run(tmp_path / "number", stdin="\na man\n") == f"\n{value:.6g}\n"
    assert run(tmp_path / "tag", stdin="the dogs\n\n") == " ".join(tag["tag"] for tag in tags) + "\n\n"


def test_a_long_text_is_refused_or_cut_when_asked(tmp_path: Path) -> None:
    kept(classifier(dtype=torch.float32), tmp_path / "class")
    kept(tiny("bert", task="tag", n_classes=2, labels=("O", "B"), dtype=torch.float32), tmp_path / "tag")
    long = "dog " * 40
    for folder in (tmp_path / "class", tmp_path / "tag"):
        ran = CliRunner().invoke(cli.app, ["classify", "--model", str(folder)], input=f"a man\n{long}\n")
        assert (ran.exit_code, ran.stdout.count("\n")) == (2, 1)
        assert "stdin, line 2: has 42 tokens; this model reads at most 32: --cut 32" in ran.stderr
        ran = CliRunner().invoke(cli.app, ["classify", "--model", str(folder), long])
        assert (ran.exit_code, "text 1 has 42 tokens" in ran.output) == (2, True)
        assert run(folder, "--cut", 7, stdin=long) == run(folder, stdin="dog " * 5)


def test_pictures(tmp_path: Path) -> None:
    model = tiny("vit", dtype=torch.float32)
    save(model, tmp_path / "model")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    said = json.loads(run(tmp_path / "model", tmp_path / "a.png", "--json"))
    assert said["label"] == classify(model, tmp_path / "a.png").label
    lines = run(tmp_path / "model", stdin=f"{tmp_path / 'a.png'}\n\n{tmp_path / 'a.png'}\n")
    assert lines == "{0}\n\n{0}\n".format(f"{said['label']}\t{said['probability']:.4f}")
    ran = CliRunner().invoke(cli.app, ["classify", "--model", str(tmp_path / "model"), "--cut", "3", "a.png"])
    assert (ran.exit_code, "--cut is for texts" in ran.output) == (2, True)


def test_a_bad_picture_is_named_and_the_others_are_answered(tmp_path: Path) -> None:
    model = tiny("vit", dtype=torch.float32)
    save(model, tmp_path / "model")
    good, bad, plain = (tmp_path / f"{name}.png" for name in ("good", "bad", "plain"))
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(good)
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(plain)
    bad.write_text("no picture")
    asked = ["classify", "--model", str(tmp_path / "model")]
    for lines in (False, True):
        names = [str(name) for name in (good, bad, plain, good)]
        more, given = (asked, "\n".join(names)) if lines else ([*asked, *names], None)
        ran = CliRunner().invoke(cli.app, [*more, "--json"], input=given)
        said = [json.loads(line) for line in ran.stdout.splitlines()]
        assert [one["input"] for one in said] == names
        assert ["error" in one for one in said] == [False, True, False, False]
        assert said[0]["label"] == said[3]["label"] == classify(model, good).label
        assert ran.exit_code == 2
        assert f"error: {bad} cannot be read" in ran.stderr
        assert ran.stderr.rstrip().endswith("error: 1 picture could not be read")
        assert ran.stderr.count("has only one colour") == 1
        plainly = CliRunner().invoke(cli.app, more, input=given)
        assert len(plainly.stdout.splitlines()) == (4 if lines else 3)
    assert CliRunner().invoke(cli.app, [*asked, str(bad)]).exit_code == 2
