"""`cutaway fill`: arguments or stdin, a table or JSON."""

import json
from pathlib import Path

import pytest
import torch
from decoding.test_fill import masked, wordpiece
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
    assert run(folder, "--json", "--k", 2, stdin="\n".join(texts)).stdout == ran.stdout
    assert run(folder, "-", "--json", "--k", 2, stdin="\n".join(texts) + "\n").stdout == ran.stdout
    expected = fill(masked(dtype=torch.float32), wordpiece(), texts, k=2)
    for line, filled in zip(ran.stdout.splitlines(), expected, strict=True):
        said = json.loads(line)
        assert said["sentence"] == filled.sentence
        assert [[w["id"] for w in words] for words in said["blanks"]] == [[w.id for w in b] for b in filled.blanks]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_table_in_every_precision(folder: Path, precision: str) -> None:
    ran = run(folder, "the [MASK] barked .", "--precision", precision)
    assert ran.exit_code == 0, ran.output
    assert len(ran.stdout.splitlines()) == 6
    assert "%" in ran.stdout


def test_errors_are_exit_code_2(folder: Path) -> None:
    ran = run(folder, "no blank")
    assert (ran.exit_code, "text 1 has no blank" in ran.output) == (2, True)
    assert run(folder, stdin="").exit_code == 2
    (folder / "tokenizer.json").unlink()
    ran = run(folder, "the [MASK]")
    assert (ran.exit_code, "has no tokenizer" in ran.output) == (2, True)
