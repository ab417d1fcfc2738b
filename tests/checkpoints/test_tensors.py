"""Safetensors in and out: what is written comes back, nothing is copied that need not be, shards are one mapping."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.limits import limits
from safetensors.torch import load_file, save_file
from torch import Tensor

from cutaway.checkpoints import weight_source
from cutaway.checkpoints.tensors import DTYPES, open_tensors, write_tensors
from cutaway.errors import CheckpointError


def of_every_dtype() -> dict[str, Tensor]:
    tensors = {}
    for dtype in DTYPES.values():
        values = torch.arange(24).remainder(2 if dtype is torch.bool else 7).to(torch.float32)
        tensors[str(dtype)] = values.to(dtype).view(2, 3, 4)
    return tensors | {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 5), "vector": torch.randn(5)}


def test_every_dtype_goes_out_and_comes_back(tmp_path: Path):
    tensors = of_every_dtype()
    write_tensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    file = open_tensors(tmp_path)
    assert sorted(file.names()) == sorted(tensors)
    assert file.metadata == {"format": "pt"}
    assert "scalar" in file
    assert "absent" not in file
    peer = load_file(tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        assert file.shape(name) == tuple(tensor.shape)
        assert file.dtype(name) == tensor.dtype
        for read in (file.read(name), file.read(name, copy=True), peer[name]):
            assert read.dtype == tensor.dtype
            assert torch.equal(read.to(torch.float64), tensor.to(torch.float64))


def test_reading_maps_the_file_and_copying_does_not(tmp_path: Path):
    write_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(1000)})
    file = open_tensors(tmp_path)
    assert file.read("a").data_ptr() == file.read("a").data_ptr()
    assert file.read("a", copy=True).data_ptr() != file.read("a", copy=True).data_ptr() != file.read("a").data_ptr()


def test_a_view_outlives_its_file_object_and_never_writes_to_the_file(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.ones(1000)})
    before = path.read_bytes()
    view = open_tensors(path).read("a")
    view.add_(1)
    assert view.sum() == 2000
    assert path.read_bytes() == before


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_copy_into_keeps_the_targets_dtype_strides_and_gradient(tmp_path: Path, chunk: int, monkeypatch):
    monkeypatch.setattr(weight_source, "CHUNK", chunk)
    numbers = torch.randn(7, 5, 3, dtype=torch.float64)
    write_tensors(tmp_path / "model.safetensors", {"a": numbers})
    file = open_tensors(tmp_path)
    half, turned = torch.empty(7, 5, 3, dtype=torch.bfloat16), torch.empty(3, 5, 7, dtype=torch.float64)
    part = torch.nn.Parameter(torch.zeros(9, 5, 3, dtype=torch.float64))
    wide = torch.zeros(7, 5, 9, dtype=torch.float64)
    file.copy_into("a", wide[:, :, 3:6])
    file.copy_into("a", half)
    file.copy_into("a", turned.permute(2, 1, 0))
    file.copy_into("a", part[1:8])
    assert torch.equal(half, numbers.bfloat16())
    assert torch.equal(turned.permute(2, 1, 0), numbers)
    assert torch.equal(part[1:8], numbers)
    assert torch.equal(wide[:, :, 3:6], numbers)
    assert not wide[:, :, :3].any()
    assert not wide[:, :, 6:].any()
    assert not part[0].any()
    assert not part[8].any()


def test_a_wrong_shape_or_name_is_told(tmp_path: Path):
    write_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(2, 3)})
    file = open_tensors(tmp_path)
    with pytest.raises(CheckpointError, match=r"'a' has shape \(2, 3\), but \(3, 2\) is wanted"):
        file.copy_into("a", torch.zeros(3, 2))
    with pytest.raises(CheckpointError, match="no tensor 'b'; it holds a"):
        file.read("b")


def test_a_file_that_shrinks_under_us_is_told(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.zeros(2000)})
    file = open_tensors(path)
    os.truncate(path, 4000)
    with limits(30), pytest.raises(CheckpointError, match="became shorter"):
        file.copy_into("a", torch.zeros(2000))


# --- shards -----------------------------------------------------------------------------------------------------------


def write_shards(folder: Path, weight_map: dict[str, str] | None = None) -> dict[str, Tensor]:
    tensors = {"a": torch.randn(3), "b": torch.randn(2, 2), "c": torch.randn(1)}
    save_file({"a": tensors["a"], "b": tensors["b"]}, folder / "model-1.safetensors")
    save_file({"c": tensors["c"]}, folder / "model-2.safetensors")
    weight_map = weight_map or {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return tensors


@pytest.mark.parametrize("place", [".", "model.safetensors.index.json"])
def test_shards_are_one_mapping(tmp_path: Path, place: str):
    tensors = write_shards(tmp_path)
    file = open_tensors(tmp_path / place)
    assert sorted(file.names()) == sorted(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(file.read(name), tensor)
        assert torch.equal(file.read(name, copy=True), tensor)


@pytest.mark.parametrize(
    ("weight_map", "reason"),
    [
        ({"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}, "in another shard"),
        ({"a": "model-1.safetensors"}, "'b': only a shard holds it"),
        ({"a": "model-1.safetensors", "b": "model-1.safetensors", "z": "model-1.safetensors"}, "'z': only the index"),
        ({"a": "model-3.safetensors"}, "'model-3.safetensors' not found in"),
        ({"a": 1}, "no 'weight_map'"),
        ({"a": "../model-1.safetensors"}, "not found in"),
        ({"a": "/etc/passwd"}, "not found in"),
        ({"a": "folder"}, "not a regular file"),
        ({"a": "out"}, "not a regular file"),
        ({"a": "loop.safetensors"}, "not found in"),
    ],
)
def test_an_index_that_its_shards_do_not_bear_out_is_refused(tmp_path: Path, weight_map: dict, reason: str):
    folder = tmp_path / "folder"
    folder.mkdir()
    write_shards(folder, weight_map)
    save_file({"a": torch.zeros(1)}, tmp_path / "model-1.safetensors")
    (folder / "folder").mkdir()
    (folder / "out").symlink_to("/dev/zero")
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    with pytest.raises(CheckpointError, match=reason):
        open_tensors(folder)


def test_shards_in_a_hugging_face_cache_are_links_and_are_followed(tmp_path: Path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    tensors = write_shards(snapshot)
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../../blobs/{number}")
    found = open_tensors(snapshot)
    assert all(torch.equal(found.read(name), tensor) for name, tensor in tensors.items())


def test_a_shard_that_the_index_never_names_is_no_part_of_it(tmp_path: Path):
    write_shards(tmp_path, {"a": "model-1.safetensors", "b": "model-1.safetensors"})
    assert set(open_tensors(tmp_path).names()) == {"a", "b"}


def test_a_name_in_two_shards_is_refused(tmp_path: Path):
    write_shards(tmp_path)
    save_file({"a": torch.zeros(3), "c": torch.zeros(1)}, tmp_path / "model-2.safetensors")
    with pytest.raises(CheckpointError, match="'a' stands in"):
        open_tensors(tmp_path)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_tied_and_overlapping_tensors_are_refused(tmp_path: Path):
    weight = torch.randn(4, 6)
    for other in (weight, weight[:2], weight[1:], weight.T, weight[:, :3], weight.view(-1)):
        with pytest.raises(CheckpointError, match="share memory: pass one of them"):
            write_tensors(tmp_path / "x.safetensors", {"embedding": weight, "output": other})
    with pytest.raises(CheckpointError, match="'a' is on the meta device"):
        write_tensors(tmp_path / "x.safetensors", {"a": torch.empty(1, device="meta")})
    with pytest.raises(CheckpointError, match=r"'a' is of torch\.complex64; written are torch\.bool"):
        write_tensors(tmp_path / "new" / "x.safetensors", {"a": torch.ones(1, dtype=torch.complex64)})
    assert os.listdir(tmp_path) == []


def test_parts_of_one_memory_that_do_not_overlap_are_written(tmp_path: Path):
    fused = torch.randn(6, 4, requires_grad=True)
    parts = {"q": fused[:2], "k": fused[2:4], "v": fused[4:].T}
    write_tensors(tmp_path / "x.safetensors", parts)
    file = open_tensors(tmp_path / "x.safetensors")
    assert all(torch.equal(file.read(name), part) for name, part in parts.items())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.ones(3)})

    def disk_full(tensor: Tensor) -> bytes:  # after the header is written
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cutaway.checkpoints.tensors._numbers", disk_full)
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be written: No space left"):
        write_tensors(path, {"a": torch.zeros(3)})
    assert open_tensors(path).read("a").sum() == 3
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_written_file_is_as_readable_as_any_other(tmp_path: Path):
    write_tensors(tmp_path / "model.safetensors", {"a": torch.ones(3)})
    (tmp_path / "ordinary").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


# --- memory -----------------------------------------------------------------------------------------------------------

COPY = """
import sys, torch
from pathlib import Path
from cutaway.checkpoints.tensors import open_tensors

def status(key):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

path = Path(sys.argv[1])
file = open_tensors(path)
before = status("VmRSS")
model = {name: torch.empty(file.shape(name)) for name in file.names()}
for name, tensor in model.items():
    file.copy_into(name, tensor) if sys.argv[2] == "copy" else tensor.copy_(file.read(name))
print((status("VmHWM") - before) / path.stat().st_size)
"""


def write_sparse(path: Path, rows: list[int], columns: int = 768) -> None:
    """A large file of zeros that takes no room on the disk."""
    header, at = {}, 0
    for index, n in enumerate(rows):
        size = n * columns * 4
        header[f"t{index}"] = {"dtype": "F32", "shape": [n, columns], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


@pytest.mark.parametrize(("way", "least", "most"), [("copy", 0.95, 1.15), ("read", 1.9, 2.1)])
def test_filling_a_model_from_a_file_peaks_at_little_more_than_the_model(
    tmp_path: Path, way: str, least: float, most: float
):
    """500 MB, resident file pages included. Reading mapped views instead costs twice as much, which is measured too."""
    path = tmp_path / "big.safetensors"
    write_sparse(path, [50257, *[3072] * 38])
    done = subprocess.run([sys.executable, "-c", COPY, path, way], capture_output=True, text=True, check=True)
    assert least < float(done.stdout) < most
