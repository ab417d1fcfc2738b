"""Two processes find the weights that one would: the sum of the parts' gradients is the gradient of the whole."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import toy

from cutaway.checkpoints import load
from cutaway.training.train import train

KINDS = ["lines", "translate", "pretrain", "classify"]
# Above the noise of adding in another order: where a gradient is 0, Adam divides noise by noise.
TABLES: dict[str, dict[str, Any]] = {
    "model": {"dropout": 0.0},
    "train": {"steps": 3, "rows": 7, "tokens": 512},
    "optimizer": {"eps": 1e-4, "clip": 0.1},
    "evaluate": {"every": 3},
}
PROGRAM = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
sys.path.insert(0, {tests!r})
from toy import toy
from cutaway.training.train import train
torch.set_num_threads(1)
folder = Path({folder!r})
for kind in {kinds!r}:
    outcome = train(toy(kind, folder, **{tables!r}), folder / f"two-{{kind}}")
    assert outcome.step == 3
dist.destroy_process_group()
"""


def test_two_processes_find_the_weights_of_one(tmp_path: Path) -> None:
    """Seven rows a step: four for the first process, three for the second."""
    for kind in KINDS:
        train(toy(kind, tmp_path, **TABLES), tmp_path / f"one-{kind}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path), kinds=KINDS, tables=TABLES)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = []
    for rank in range(2):
        environment = {**os.environ, **common, "RANK": str(rank)}
        command = [sys.executable, "-c", program]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        for process in started:
            _, said = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()
    for kind in KINDS:
        one, two = (load(tmp_path / f"{n}-{kind}") for n in ("one", "two"))
        for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
            assert (a - b).abs().max() <= 1e-6, (kind, name)


def test_one_process_alone_joins_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.training.parallel import Group, join_group

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_group(torch.device("cpu")) == Group(rank=0, world=1)
    assert Group().leads
    assert not Group(rank=1, world=2).leads
