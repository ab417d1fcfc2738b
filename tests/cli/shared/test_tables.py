"""Tables of answers: whole on a terminal of any width, one line for each text; no bars and nothing cut in a pipe."""

import re
from pathlib import Path

import pytest
import torch
from helpers.classifiers import classifier
from helpers.masked_models import masked, wordpiece
from helpers.tiny_models import tiny
from rich.cells import cell_len
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import save

LONG = "the dogs barked 数学 " * 10
LABELS = ("yes", "a label of very many words that says a lot", "数学")


def shown(columns: int | None, *args: object) -> list[str]:
    env = {} if columns is None else {"FORCE_COLOR": "1", "COLUMNS": str(columns), "TERM": "xterm"}
    ran = CliRunner().invoke(cli.app, [str(arg) for arg in args], env=env)
    assert ran.exit_code == 0, ran.output
    return re.sub(r"\x1b\[[\d;]*m", "", ran.stdout).splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_class_and_its_chance_are_never_cut(tmp_path: Path, columns: int) -> None:
    save(classifier(labels=LABELS, dtype=torch.float32), tmp_path, wordpiece())
    lines = shown(columns, "classify", "--model", tmp_path, LONG, "a man", f"a dog\t{LONG}", "--cut", 32)
    assert all(cell_len(line) <= columns for line in lines)
    chances = [line for line in lines if "%" in line]
    assert len(chances) == 3
    assert all("█" in line or "▉" in line or "▌" in line for line in chances)
    assert "…" in chances[0]
    piped = shown(None, "classify", "--model", tmp_path, LONG, "a man", "--cut", 32)
    assert len(piped) == 2
    assert LONG.rstrip() in piped[0]
    assert "█" not in "".join(piped)


@pytest.mark.parametrize("columns", [40, 64, 80, 120])
def test_a_text_has_one_line_beside_its_vector(tmp_path: Path, columns: int) -> None:
    save(tiny("bert", task="hidden", dtype=torch.float32), tmp_path, wordpiece())
    texts = [LONG, "a man", "the dog\n\nbarked"]
    lines = shown(columns, "embed", "--model", tmp_path, *texts, "--cut", 16)
    assert all(cell_len(line) <= columns for line in lines)
    assert len(lines) == 1 + len(texts)
    assert lines[1].startswith("1.000")
    assert lines[1].rstrip().endswith("…")
    assert "a man" in lines[2]
    assert ("numbers" in lines[0]) == (columns > 40)
    piped = shown(None, "embed", "--model", tmp_path, *texts, "--cut", 16)
    assert len(piped) == 1 + len(texts)
    assert LONG.strip() in piped[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_reason_is_said_once_and_whole(tmp_path: Path, columns: int) -> None:
    save(tiny("transformer-rotary", dtype=torch.float32, start_id=1, end_ids=(2,)), tmp_path)
    lines = shown(columns, "verify", tmp_path, "--quick", "--device", "cpu")
    assert all(cell_len(line) <= columns for line in lines if "certificate.json" not in line)
    assert "…" not in "".join(line for line in lines if "rows of" not in line)
    said = " ".join(" ".join(lines).split())
    assert said.count("cannot express positions='rotary'") == 1
    number = next(line.split()[0] for line in lines if "cannot express" in line)
    assert [line.split("  ")[0] for line in lines if line.rstrip().endswith(f" {number}")] == [
        "export to HF = native",
        "transformers = native",
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_as_many_blanks_stand_side_by_side_as_fit(tmp_path: Path, columns: int) -> None:
    save(masked(dtype=torch.float32), tmp_path, wordpiece())
    lines = shown(columns, "fill", "--model", tmp_path, "the ___ saw the ___ and the ___ .", "--k", 2)
    assert all(cell_len(line) <= columns for line in lines)
    assert "".join(lines).count("blank") == 3
    assert "".join(lines).count("%") == 6
    assert (lines[1].count("blank") > 1) == (columns > 40)
