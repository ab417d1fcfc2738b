"""Faults 6, 20 and 21 for folders in 8 bits and in shards: what is damaged is named, before anything is allocated."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.tiny_models import tiny
from safetensors.torch import load_file, save_file
from torch import Tensor

from cutaway.bundled.info import look_at
from cutaway.checkpoints import load, save
from cutaway.checkpoints.tensors import INDEX
from cutaway.errors import CheckpointError

MATRIX = "embedding.tokens.weight"
FIRST = "model-00001-of-00003.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tiny("gpt2", dtype=torch.float32), tmp_path, store="int8", shard_size=7000)
    assert (tmp_path / FIRST).exists()
    return tmp_path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def cut_in_its_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def huge_header(path: Path) -> None:
    path.write_bytes((1 << 60).to_bytes(8, "little") + path.read_bytes()[8:])


@pytest.mark.parametrize("damage", [cut, cut_in_its_header, empty, huge_header, Path.unlink])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_shard_is_named_by_whoever_reads_it(damage: Callable[[Path], None], number: int, folder: Path):
    path = folder / f"model-0000{number}-of-00003.safetensors"
    damage(path)
    with pytest.raises(CheckpointError, match=path.name):
        load(folder)
    assert path.name in str(look_at("x", folder).problem)


def test_an_index_that_is_damaged_or_gone(folder: Path):
    values = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({"weight_map": {**values["weight_map"], MATRIX: "../other.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"'../other.safetensors' not found"):
        load(folder)
    assert "not found" in str(look_at("x", folder).problem)
    (folder / INDEX).write_text('{"weight_map": 3}')
    with pytest.raises(CheckpointError, match="no 'weight_map'"):
        load(folder)
    (folder / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"holds no model.safetensors and no {INDEX}"):
        load(folder)
    assert INDEX in str(look_at("x", folder).problem)


def without_scale(tensors: dict[str, Tensor]) -> None:
    del tensors[MATRIX + ".scale"]


def short_scale(tensors: dict[str, Tensor]) -> None:
    tensors[MATRIX + ".scale"] = tensors[MATRIX + ".scale"][:-1].clone()


def coarse_scale(tensors: dict[str, Tensor]) -> None:
    tensors[MATRIX + ".scale"] = tensors[MATRIX + ".scale"].bfloat16()


def orphan(tensors: dict[str, Tensor]) -> None:
    tensors["other.scale"] = torch.ones(3)


def scale_of_a_float(tensors: dict[str, Tensor]) -> None:
    tensors[MATRIX] = tensors[MATRIX].float()


def whole_vector(tensors: dict[str, Tensor]) -> None:
    name = next(name for name, tensor in tensors.items() if tensor.ndim == 1 and not name.endswith(".scale"))
    tensors[name], tensors[name + ".scale"] = tensors[name].to(torch.int8), torch.ones(len(tensors[name]))


def narrow(tensors: dict[str, Tensor]) -> None:
    tensors[MATRIX] = tensors[MATRIX][:, :-1].clone()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_scale, rf"'{MATRIX}' is stored in 8 bits, but '{MATRIX}.scale' is missing"),
        (short_scale, rf"'{MATRIX}.scale', torch.float32 of shape \(49,\), is not one scale for each row"),
        (coarse_scale, rf"'{MATRIX}.scale', torch.bfloat16 of shape \(50,\), is not one scale"),
        (orphan, "holds 'other.scale', for which this model has no place"),
        (scale_of_a_float, f"holds '{MATRIX}.scale', for which this model has no place"),
        (whole_vector, "is not one scale for each row of"),
        (narrow, rf"'{MATRIX}' has shape \(50, 23\), but \(50, 24\) is wanted"),
    ],
)
def test_scales_that_do_not_fit_are_named(change: Callable[[dict[str, Tensor]], None], message: str, tmp_path: Path):
    save(tiny("gpt2", dtype=torch.float32), tmp_path, store="int8")
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)
