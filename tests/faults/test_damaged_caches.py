"""A flipped bit in what was read once: it is noticed, and the run ends as it would have."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.toy_recipes import toy

from cutaway.training.train import train


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", ["next_token", "translate", "tag", "images"])
def test_a_flipped_bit_in_each_file_of_the_cache_is_noticed_and_changes_no_weight(kind: str, tmp_path: Path):
    recipe, whole = toy(kind, tmp_path), tmp_path / "whole"

    def copy(event: dict[str, Any]) -> None:
        if event["event"] == "checkpoint" and event["step"] == 2:
            shutil.copytree(whole, tmp_path / "half")

    assert train(recipe, whole, listeners=[copy]).finished
    cache = tmp_path / "cache" / "data"
    draw, entries = random.Random(kind), sorted(path for path in cache.iterdir() if path.is_dir())
    damaged = [draw.choice(sorted(path for path in entry.iterdir() if path.stat().st_size)) for entry in entries]
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
    said: list[str] = []
    train(recipe, tmp_path / "half", resume=True, listeners=[lambda event: said.append(str(event.get("text")))])
    for path in damaged:
        assert len([text for text in said if "is built again" in text and os.fspath(path) in text]) == 1
    assert (tmp_path / "half" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
