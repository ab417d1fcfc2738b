"""`cutaway verify`: a table, a file beside the weights, and an exit code that means something."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from typer.testing import CliRunner, Result

from cutaway import checkpoints, cli
from cutaway.certificate import laws
from cutaway.checkpoints import save
from cutaway.errors import InputError


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
    written = json.loads((folder / "certificate.json").read_text())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert (written["schema"], written["machine"]["device"], written["precision"]) == (3, device, "fp32")
    assert f"fp32 on {device}" in ran.output
    again = verify(folder, "--check", "--json")
    assert (again.exit_code, json.loads(again.stdout)["stale"]) == (0, [])
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    ran = verify(folder, "--check")
    assert ran.exit_code == 1
    assert "stale: model.safetensors changed since" in " ".join(ran.output.split())


def test_the_certificate_of_a_bundled_model_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cutaway.cli.verify"], "HERE", folder.parent)
    ran = verify(folder, "--quick")
    assert ran.exit_code == 0, ran.output
    assert "--out FILE writes this one" in ran.stderr
    assert not (folder / "certificate.json").exists()
    verify(folder, "--quick", "--out", folder / "mine.json")
    assert (folder / "mine.json").exists()


def test_a_law_that_fails_is_exit_code_1(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "difference", lambda ours, theirs: 0.5)
    out = tmp_path / "elsewhere.json"
    ran = verify(folder, "--quick", "--json", "--out", out)
    assert ran.exit_code == 1
    said = json.loads(ran.stdout)
    assert said["entries"][1] | {"inputs": ""} == {
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


def test_what_breaks_off_is_said_and_is_exit_code_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ours: object, theirs: object) -> float:
        raise RuntimeError("no room")

    monkeypatch.setattr(laws, "difference", broken)
    ran = verify(folder, "--quick", "--device", "cpu")
    assert ran.exit_code == 1
    assert "failed" not in ran.output
    assert "could not be measured: RuntimeError: no room" in " ".join(ran.output.split())


@pytest.mark.parametrize("there", [True, False])
def test_it_certifies_where_translate_runs(folder: Path, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(path: Path, *, device: str, **more: Any) -> Any:
        asked.append(device)
        raise InputError("enough")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(checkpoints, "load", load)
    monkeypatch.setattr(sys.modules["cutaway.certificate.verify"], "load", load)
    verify(folder)
    CliRunner().invoke(cli.app, ["translate", "--model", str(folder), "Wait!"])
    assert asked == ["cuda" if there else "cpu"] * 2
    verify(folder, "--device", "cpu")
    assert asked[2:] == ["cpu"]


def test_a_device_that_is_not_meant_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = verify(folder, "--device", "cuda")
    assert (ran.exit_code, "torch finds no GPU here" in " ".join(ran.output.split())) == (2, True)
    assert verify(folder, "--quick", "--device", "cpu").exit_code == 0
    ran = verify(folder, "--check", "--device", "cuda")
    assert (ran.exit_code, "was not measured on cuda" in " ".join(ran.output.split())) == (2, True)
    assert verify(folder, "--check", "--device", "cpu").exit_code == 0
