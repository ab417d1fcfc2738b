"""A model of one format is read without importing the readers of others."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.tiny_models import tiny

from cutaway.checkpoints import export, save
from cutaway.checkpoints.loading import format_of
from cutaway.errors import CheckpointError

READ = """
import sys
from cutaway.checkpoints import load, load_tokenizer
load({path!r})
print(*sorted(name for name in sys.modules if name.startswith(("cutaway.checkpoints.", "cutaway.families."))))
"""


def imported(path: Path) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", READ.format(path=str(path))], capture_output=True, text=True, check=True
    )
    return {name.removeprefix("cutaway.") for name in ran.stdout.split()}


def test_a_transformer_needs_neither_gguf_nor_llama_nor_the_exports(tmp_path: Path):
    save(tiny("transformer", dtype=torch.float32), tmp_path / "own")
    others = ("gguf", "llama", "hf", "onnx", "to_", "bert", "gpt", "t5", "vit", "lstm")
    found = imported(tmp_path / "own")
    assert "families.transformer" in found
    assert [name for name in found if name.partition(".")[2].startswith(others)] == []


def test_a_gpt_2_of_hugging_face_needs_only_the_names_of_its_own(tmp_path: Path):
    export(tiny("gpt2", dtype=torch.float32), tmp_path / "theirs")
    found = {name for name in imported(tmp_path / "theirs") if name.startswith(("checkpoints.hf_", "families."))}
    assert {"checkpoints.hf_gpt2", "families.gpt2"} <= found
    assert {name.rpartition("_")[2] for name in found} & {"llama", "marian", "t5", "vit", "bert"} == set()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("weights.safetensors", "holds weights alone: give its folder"),
        ("notes.txt", "Cutaway reads folders with a config.json"),
        ("absent.gguf", "Cutaway reads folders with a config.json"),
    ],
)
def test_other_files_are_refused(name: str, says: str, tmp_path: Path):
    if "absent" not in name:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=says):
        format_of(tmp_path / name)
