"""What is in deploy/ fits the code: the commands, the options, the files, the extras."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer
from helpers.served import running, service_of

from cutaway.cli import app
from cutaway.serving.limits import Limits

ROOT = Path(__file__).parents[2]
IMAGE = (ROOT / "deploy" / "Dockerfile").read_text()


def unit() -> ConfigParser:
    reads = ConfigParser(strict=False, interpolation=None)
    reads.optionxform = str  # type: ignore[assignment,method-assign]
    reads.read(ROOT / "deploy" / "cutaway.service")
    return reads


def served(words: list[str]) -> dict[str, object]:
    """The values of the options that these words of a command set; unknown ones are an error."""
    program, command, *more = words
    assert Path(program).name == "cutaway"
    assert command == "serve"
    group = typer.main.get_command(app)
    with group.make_context("cutaway", [command, *more], resilient_parsing=False) as context:
        serve = group.get_command(context, command)  # type: ignore[attr-defined]
        return serve.make_context(command, list(more), parent=context).params


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", IMAGE, re.M)


def test_the_image_starts_the_server_for_all_addresses():
    (words,) = map(json.loads, instructions("CMD"))
    values = served(words)
    assert values["host"] == "0.0.0.0"
    assert instructions("EXPOSE") == [str(values["port"])]
    (health,) = map(json.loads, instructions("HEALTHCHECK CMD"))
    assert f":{values['port']}/health" in health[-1]


@pytest.mark.parametrize("key", [None, "secret"])
def test_the_image_knows_its_health_with_a_key_and_without(key):
    (health,) = map(json.loads, instructions("HEALTHCHECK CMD"))
    environment = {name: value for name, value in os.environ.items() if name != "CUTAWAY_API_KEY"}
    with running(service_of(key=key)) as server:
        words = [sys.executable, *(word.replace("http://127.0.0.1:8321", server.url) for word in health[1:])]
        ran = [subprocess.run(words, env=environment | more, capture_output=True).returncode
               for more in ({}, {"CUTAWAY_API_KEY": f" {key}\n"})]  # fmt: skip
    assert ran == [int(key is not None), 0]


def test_the_image_copies_and_installs_what_there_is():
    for copied in instructions("COPY"):
        for name in shlex.split(copied)[:-1]:
            assert (ROOT / name).exists(), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.*)\]'", IMAGE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    needed = {project["readme"], "LICENSE"}
    assert needed <= {name for copied in instructions("COPY") for name in shlex.split(copied)}
    assert instructions("USER") == ["cutaway"]


def test_the_unit_starts_the_server_for_this_machine_alone():
    service = unit()["Service"]
    values = served(shlex.split(service["ExecStart"]))
    assert values["host"] == "127.0.0.1"
    assert int(service["TimeoutStopSec"]) > values["drain_seconds"] == Limits().drain_seconds
    assert service["ProtectSystem"] == "strict"
    assert service["DynamicUser"] == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path):
    text = (ROOT / "deploy" / "cutaway.service").read_text().replace("/opt/cutaway/.venv/bin/cutaway", "/bin/true")
    (tmp_path / "cutaway.service").write_text(text)
    ran = subprocess.run(["systemd-analyze", "verify", tmp_path / "cutaway.service"], capture_output=True, text=True)
    assert "cutaway.service" not in ran.stderr, ran.stderr
