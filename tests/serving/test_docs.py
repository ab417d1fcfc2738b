"""docs/serving.md: its commands and clients run, as a reader would type them."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.client_packages import environment_with
from helpers.served import GUARD, running, served_model, service_of

import cutaway
from cutaway.serving.watching import WatchRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text()
SHELL = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
PYTHON = re.findall(r"^```python\n(# (\w+)\n.*?)^```$", PAGE, re.M | re.S)
PACKAGES = {"openai": "openai==3.51.0", "libretranslatepy": "libretranslatepy==2.1.4"}


@pytest.fixture(scope="module")
def server():
    models = [served_model(name, cutaway.load(name), None if name == "digits" else cutaway.load_tokenizer(name))
              for name in ("en-de", "books", "cloze", "digits")]  # fmt: skip
    with running(service_of(*models)) as server:
        yield server


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("line", [line for line in SHELL if line.startswith("curl ")])
def test_commands_of_curl_run(server, line):
    command = shlex.split(line.replace("http://", "").replace("localhost:8321", server.url))
    ran = subprocess.run(
        [*command, "--fail-with-body", "--silent"], cwd=ROOT, capture_output=True, text=True, timeout=GUARD
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)


def test_the_first_answer_is_the_one_that_is_shown(server):
    shown = json.loads(re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S)[0])
    assert shown["translatedText"] == cutaway.translate(
        cutaway.load("en-de"), cutaway.load_tokenizer("en-de"), "Where is the station?", to="de"
    )


@pytest.mark.parametrize(("source", "package"), PYTHON, ids=[package for _, package in PYTHON])
def test_clients_run(request, server, source, package, tmp_path):
    (tmp_path / "client.py").write_text(source.replace("http://localhost:8321", server.url))
    python = environment_with(request.config, PACKAGES[package])
    ran = subprocess.run([python, tmp_path / "client.py"], capture_output=True, text=True, timeout=GUARD)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


def test_every_field_of_a_watch_is_explained():
    rows = set(re.findall(r"^\| `(\w+): ", PAGE, re.M))
    assert rows == set(WatchRequest.__dataclass_fields__)
