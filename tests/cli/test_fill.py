"""`cutaway fill`: arguments or stdin, a table or JSON."""

import json
from pathlib import Path

import pytest
import torch
from helpers.masked_models import masked, wordpiece
from typer.testing import CliRunner, Result

from cutaway import cli, fill
from cutaway.checkpoints import save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(masked(dtype=torch.float32), tmp_path / "model", wordpiece())
    return tmp_path / "model"


def run(folder: Path, *args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, ["fill", "--model", str(folder), *map(str, args)], input=stdin)


def test_arguments_and_lines_say_the_same(folder: Path) -> None:
    texts = ["the [MASK] barked .", "no one saw the ___ and the ___"]
    ran = run(folder, *texts, "--json", "--k", 2)
    assert ran.exit_code == 0, ran.output
    unended = run(folder, "--json", "--k", 2, stdin="\n".join(texts)).stdout  # its last line is a window of its own
    sentences = [[json.loads(line)["sentence"] for line in said.splitlines()] for said in (unended, ran.stdout)]
    assert sentences[0] == sentences[1]
    assert run(folder, "-", "--json", "--k", 2, stdin="\n".join(texts) + "\n").stdout == ran.stdout
    expected = fill(masked(dtype=torch.float32), wordpiece(), texts, k=2)
    for line, filled in zip(ran.stdout.splitlines(), expected, strict=True):
        said = json.loads(line)
        assert said["sentence"] == filled.sentence
        assert [[w["id"] for w in words] for words in said["blanks"]] == [[w.id for w in b] for b in filled.blanks]


def test_lines_in_lines_out(folder: Path, tmp_path: Path) -> None:
    lines = ["the [MASK] barked .", "", "  ", "no one saw the ___ and the ___", ""]
    filled = iter(fill(masked(dtype=torch.float32), wordpiece(), [line for line in lines if line.strip()]))
    expected = [next(filled).sentence if line.strip() else "" for line in lines]
    text = "".join(line + "\n" for line in lines)
    assert run(folder, stdin=text).stdout.split("\n")[:-1] == expected
    (tmp_path / "in").write_text(text)
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    assert run(folder, *files).exit_code == 0
    assert (tmp_path / "out").read_text().split("\n")[:-1] == expected
    assert run(folder, *files).exit_code == 2
    assert run(folder, *files, "--resume").exit_code == 0
    said = [json.loads(line) for line in run(folder, "--json", stdin=text).stdout.splitlines()]
    assert [one["sentence"] for one in said] == expected
    assert said[1] == {"text": "", "blanks": [], "sentence": ""}
    assert run(folder, stdin="").stdout == ""


def test_a_line_that_is_refused_is_named_and_those_before_it_are_answered(folder: Path) -> None:
    ran = run(folder, stdin="a [MASK]\n\nthe ___\nno blank\nthe ___\n")
    assert (ran.exit_code, ran.stdout.count("\n")) == (2, 3)
    assert "stdin, line 4: has no blank" in ran.stderr


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_table_in_every_precision(folder: Path, precision: str) -> None:
    ran = run(folder, "the [MASK] barked .", "--precision", precision)
    assert ran.exit_code == 0, ran.output
    assert len(ran.stdout.splitlines()) == 6
    assert "%" in ran.stdout


def test_errors_are_exit_code_2(folder: Path) -> None:
    ran = run(folder, "no blank")
    assert (ran.exit_code, "text 1 has no blank" in ran.output) == (2, True)
    (folder / "tokenizer.json").unlink()
    ran = run(folder, "the [MASK]")
    assert (ran.exit_code, "has no tokenizer" in ran.output) == (2, True)
