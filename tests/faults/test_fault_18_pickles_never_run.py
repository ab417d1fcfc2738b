"""Fault 18: a pickle or an archive in the place of weights is refused, and nothing in it runs."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import pytest
import torch

from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.checkpoints.llama2c_file import Llama2cFile
from cutaway.checkpoints.tensors import open_tensors
from cutaway.errors import CheckpointError
from cutaway.tokens import Tokenizer, find_tokenizer


class Trap:
    """Unpickled, it touches a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return Path.touch, (self.marker,)


def pickled(trap: Trap, protocol: int) -> bytes:
    return pickle.dumps({"weight": trap}, protocol)


def zipped(trap: Trap) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": trap}, buffer)
    return buffer.getvalue()


def archived(trap: Trap) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("data.pkl")
        info.size = len(pickled(trap, 2))
        tar.addfile(info, io.BytesIO(pickled(trap, 2)))
    return buffer.getvalue()


KINDS = {
    "pickle 0": (lambda trap: pickled(trap, 0), "not a sound safetensors file"),
    "pickle 2": (lambda trap: pickled(trap, 2), "seems to be a pickle"),
    "pickle 4": (lambda trap: pickled(trap, 4), "seems to be a pickle"),
    "pickle 5": (lambda trap: pickled(trap, 5), "seems to be a pickle"),
    "torch.save": (zipped, "seems to be a zip archive, which is how torch.save writes pickles"),
    "tar": (archived, "seems to be a tar archive"),
    "gzip": (lambda trap: gzip.compress(pickled(trap, 2)), "seems to be gzipped"),
}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


def test_the_trap_works(marker: Path):
    pickle.loads(pickled(Trap(marker), 2))
    assert marker.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_fault_18_a_pickle_renamed_safetensors_is_refused_and_nothing_runs(tmp_path: Path, marker: Path, kind: str):
    make, reason = KINDS[kind]
    path = tmp_path / "model.safetensors"
    path.write_bytes(make(Trap(marker)))
    for place in (path, tmp_path):
        with pytest.raises(CheckpointError, match=reason) as caught:
            open_tensors(place)
        assert "model.safetensors" in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
@pytest.mark.parametrize("kind", KINDS)
def test_fault_18_a_pickle_is_refused_with_the_way_to_convert_it(tmp_path: Path, marker: Path, kind: str, name: str):
    (tmp_path / name).write_bytes(KINDS[kind][0](Trap(marker)))
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(CheckpointError, match=f"{name} is a pickle.*weights_only=True.*save_file"):
            open_tensors(place)
    assert not marker.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [GGUFFile, Llama2cFile, Tokenizer.load], ids=["gguf", "llama2c", "tokenizer"])
def test_fault_18_no_reader_runs_a_pickle(tmp_path: Path, marker: Path, kind: str, read):
    path = tmp_path / "file"
    path.write_bytes(KINDS[kind][0](Trap(marker)))
    with pytest.raises(CheckpointError):
        read(path)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "tokenizer_config.json"])
def test_fault_18_no_tokenizer_file_is_unpickled(tmp_path: Path, marker: Path, name: str):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\na\n")
    (tmp_path / name).write_bytes(pickled(Trap(marker), 2))
    with pytest.raises(CheckpointError):
        find_tokenizer(tmp_path)
    assert not marker.exists()
