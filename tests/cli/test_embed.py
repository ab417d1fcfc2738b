"""`cutaway embed`: vectors as lines of JSON, as an array, as a table."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.classifiers import SENTENCES, wordpiece
from helpers.tiny_models import tiny
from typer.testing import CliRunner

from cutaway import cli, embed
from cutaway.checkpoints import save


def test_lines_array_and_table(tmp_path: Path) -> None:
    model = tiny("bert", task="hidden", dtype=torch.float32)
    save(model, tmp_path / "model", wordpiece())

    def run(*args: object, stdin: str | None = None) -> str:
        command = ["embed", "--model", str(tmp_path / "model"), *map(str, args)]
        ran = CliRunner().invoke(cli.app, command, input=stdin)
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    expected = embed(model, wordpiece(), SENTENCES)
    lines = run("--json", "--out", tmp_path / "a.npy", stdin="\n".join(SENTENCES)).splitlines()
    said = [json.loads(line) for line in lines]
    assert [one["text"] for one in said] == SENTENCES
    assert np.array([one["vector"] for one in said]) == pytest.approx(expected, abs=1e-6)
    assert np.load(tmp_path / "a.npy") == pytest.approx(expected, abs=1e-6)
    first = embed(model, wordpiece(), SENTENCES[:1], pool="first", cut=3)[0]
    assert json.loads(run(SENTENCES[0], "--json", "--pool", "first", "--cut", 3))["vector"] == pytest.approx(first)
    assert "1.000" in run(*SENTENCES[:2], "--precision", "bf16")
    lines = ["", SENTENCES[0], " ", *SENTENCES[1:], ""]
    text, wanted = "".join(line + "\n" for line in lines), iter(expected)
    rows = np.array([next(wanted) if line.strip() else np.zeros(expected.shape[1]) for line in lines])
    said = [json.loads(line) for line in run("--json", stdin=text).splitlines()]
    assert [len(one["vector"]) for one in said] == [expected.shape[1] if line.strip() else 0 for line in lines]
    numbers = [list(map(float, line.split())) for line in run(stdin=text).split("\n")[:-1]]
    assert [row for row in numbers if row] == pytest.approx(expected, abs=1e-5)
    (tmp_path / "in").write_text(text)
    assert run("--input", tmp_path / "in", "--out", tmp_path / "b.npy") == ""
    assert np.load(tmp_path / "b.npy") == pytest.approx(rows, abs=1e-6)
    assert run("--out", tmp_path / "empty.npy", stdin="") == ""
    assert np.load(tmp_path / "empty.npy").shape == (0, expected.shape[1])
    (tmp_path / "in").write_bytes(b"\xff\na man\n")
    command = ["embed", "--model", str(tmp_path / "model"), "--input", str(tmp_path / "in")]
    ran = CliRunner().invoke(cli.app, command)
    assert (ran.exit_code, "line 1: not UTF-8" in ran.stderr) == (2, True)


def test_words_near_a_word(tmp_path: Path) -> None:
    glove, model = tmp_path / "glove.txt", tmp_path / "model"
    glove.write_text("man 1 0 0\nwoman 1 1 0\nking 1 0 1\nqueen 1 1 1\napple -1 0.2 -1\n")
    save(tiny("bert", task="hidden", dtype=torch.float32), model, wordpiece())

    def run(*args: object, code: int = 0) -> str:
        ran = CliRunner().invoke(cli.app, ["embed", "--model", *map(str, args)])
        assert ran.exit_code == code, ran.output
        return ran.stderr if code else ran.stdout

    said = json.loads(run(glove, "--near", "king", "--k", 2, "--json"))
    assert [word for word, _ in said["found"]] == ["queen", "man"]
    assert (said["words"], said["by"]) == (5, "cosine")
    said = json.loads(run(glove, "--analogy", "man", "woman", "king", "--json"))
    assert (said["asked"], said["found"][0][0], said["by"]) == (["man", "woman", "king"], "queen", "3CosAdd")
    assert "man : woman :: king : ?" in run(glove, "--analogy", "man", "woman", "king")
    assert "dogs is dog + ##s: their mean" in run(model, "--near", "dogs")
    assert "encoder.1.residual_after" in run(model, "--near", "dog", "--at", "encoder.1.residual_after")
    assert "'kin' is none of the 5 words; near are king" in run(glove, "--near", "kin", code=2)
    assert "is for models" in run(glove, "--near", "king", "--at", "unembedding", code=2)
    assert "give one of the two" in run(glove, "--near", "king", "--analogy", "a", "b", "c", code=2)
    assert "leave out texts" in run(glove, "--near", "king", "a text", code=2)
