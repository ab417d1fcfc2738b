"""`cutaway verify`: a table, a file beside the weights, and an exit code that means something."""

import json
from pathlib import Path

import pytest
import torch
from tiny import tiny
from typer.testing import CliRunner, Result

from cutaway import cli
from cutaway.certificate import laws
from cutaway.checkpoints import save


def verify(*args: object) -> Result:
    return CliRunner().invoke(cli.app, ["verify", *map(str, args)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tiny("bert", dtype=torch.float32), tmp_path / "model")
    return tmp_path / "model"


def test_the_whole_way(folder: Path) -> None:
    ran = verify(folder, "--quick")
    assert ran.exit_code == 0, ran.output
    for said in ("batch = single", "passed", "not applicable", "not measured", "1e-05", "no decoder, so no cache"):
        assert said in " ".join(ran.output.split())
    assert json.loads((folder / "certificate.json").read_text())["schema"] == 1
    again = verify(folder, "--check", "--json")
    assert (again.exit_code, json.loads(again.stdout)["stale"]) == (0, [])
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    ran = verify(folder, "--check")
    assert ran.exit_code == 1
    assert "stale: model.safetensors changed since" in " ".join(ran.output.split())


def test_a_law_that_fails_is_exit_code_1(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "difference", lambda ours, theirs: 0.5)
    out = tmp_path / "elsewhere.json"
    ran = verify(folder, "--quick", "--json", "--out", out)
    assert ran.exit_code == 1
    said = json.loads(ran.stdout)
    assert said["entries"][0] | {"inputs": ""} == {
        "law": "batch = single",
        "verdict": "failed",
        "why": "",
        "what": "largest difference / largest number",
        "inputs": "",
        "value": 0.5,
        "tolerance": 1e-5,
        "agreement": None,
    }
    assert not (folder / "certificate.json").exists()
    assert verify(folder, "--check", "--out", out).exit_code == 1


def test_without_a_certificate_or_a_model_it_says_so(folder: Path, tmp_path: Path) -> None:
    ran = verify(folder, "--check")
    assert ran.exit_code == 2
    assert "`cutaway verify` writes it" in ran.output
    assert verify(tmp_path / "none", "--quick").exit_code == 2
