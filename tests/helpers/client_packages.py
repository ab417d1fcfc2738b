"""Client packages as people have them, each in an environment of its own, which is kept in pytest's cache."""

import json
import subprocess
import sys
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest
from helpers import clients
from helpers.served import GUARD


def environment_with(config: pytest.Config, *packages: str) -> Path:
    """The Python of an environment with these packages; the test is skipped where pip cannot install them."""
    folder = Path(config.cache.mkdir("clients")) / "-".join(packages).replace("==", "-")  # type: ignore[union-attr]
    python = folder / "bin" / "python"
    with folder.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)  # tests run in several processes
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            if subprocess.run(install, capture_output=True).returncode:
                pytest.skip(f"pip cannot install {' '.join(packages)} here")
            (folder / "ready").touch()
    return python


def run_client(config: pytest.Config, url: str, script: str, *packages: str) -> dict[str, Any]:
    """Runs a file of helpers/clients with these packages against a server, and gives what it prints."""
    file = Path(clients.__path__[0]) / script
    command = [environment_with(config, *packages), file, url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=GUARD)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found
