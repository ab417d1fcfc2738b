"""Fault 22: GGUF with wrong counts, lengths or offsets gives our error: no crash, no hang, no flood of memory."""

import struct
from pathlib import Path

import pytest
from helpers.limits import limits
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.errors import CheckpointError
from cutaway.tokens import gguf_tokenizer

HUGE = 1 << 60


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def array(item: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", item, count) + values


def tensor(
    name: bytes = b"w", axes: tuple = (4, 2), kind: int = 0, offset: int = 0, n_axes: int | None = None
) -> bytes:
    n_axes = len(axes) if n_axes is None else n_axes
    return string(name) + struct.pack(f"<I{len(axes)}QIQ", n_axes, *axes, kind, offset)


def file(
    pairs: list[bytes] = [],  # noqa: B006
    tensors: list[bytes] = [],  # noqa: B006
    data: bytes = bytes(32),
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_pairs: int | None = None,
) -> bytes:
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_pairs = len(pairs) if n_pairs is None else n_pairs
    head = magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs + tensors)
    return head + bytes(-len(head) % 32) + data


TOKENS = [string(token) for token in (b"<unk>", b"<s>", b"</s>", b"a", b"b", b"ab")]
SOUND = file(
    [
        pair(b"tokenizer.ggml.model", 8, string(b"llama")),
        pair(b"tokenizer.ggml.tokens", 9, array(8, 6, b"".join(TOKENS))),
        pair(b"tokenizer.ggml.scores", 9, array(6, 6, struct.pack("<6f", 0, 0, 0, -2, -3, -1))),
        pair(b"tokenizer.ggml.token_type", 9, array(5, 6, struct.pack("<6i", 2, 3, 3, 1, 1, 1))),
        pair(b"llama.block_count", 4, struct.pack("<I", 2)),
        pair(b"nested", 9, array(9, 2, array(0, 2, b"ab") + array(7, 1, b"\1"))),
    ],
    [tensor(), tensor(b"q", (32, 2), 8, 32)],
    bytes(32 + 68),
)
HOSTILE = {
    "empty": b"",
    "short": b"GGUF",
    "other magic": file(magic=b"GGML"),
    "version 1": file(version=1),
    "version 4": file(version=4),
    "big-endian": file(version=0x03000000),
    "2^60 tensors": file(n_tensors=HUGE),
    "2^64-1 tensors": file(n_tensors=2**64 - 1),
    "2^60 keys": file(n_pairs=HUGE),
    "key of 2^60 bytes": file([string(b"k", HUGE)], n_pairs=1),
    "string of 2^60 bytes": file([pair(b"k", 8, string(b"v", HUGE))]),
    "string of 2^63 bytes": file([pair(b"k", 8, string(b"v", 2**63))]),
    "array of 2^60 bytes": file([pair(b"k", 9, array(0, HUGE))]),
    "array of 2^60 doubles": file([pair(b"k", 9, array(12, HUGE))]),
    "array of 2^60 strings": file([pair(b"k", 9, array(8, HUGE))]),
    "array of 2^60 arrays": file([pair(b"k", 9, array(9, HUGE))]),
    "arrays in arrays in arrays": file([pair(b"k", 9, array(9, 1) * 50_000)]),
    "too many values": file([pair(b"k", 9, array(0, 1 << 25, bytes(1 << 25)))]),
    "unknown type": file([pair(b"k", 13, b"")]),
    "unknown type in an array": file([pair(b"k", 9, array(99, 1, bytes(100)))]),
    "key twice": file([pair(b"k", 0, b"1"), pair(b"k", 0, b"1")]),
    "key not UTF-8": file([pair(b"\xff", 0, b"1")]),
    "alignment 0": file([pair(b"general.alignment", 4, struct.pack("<I", 0))]),
    "alignment 3": file([pair(b"general.alignment", 4, struct.pack("<I", 3))]),
    "alignment 2^31": file([pair(b"general.alignment", 4, struct.pack("<I", 1 << 31))]),
    "alignment a word": file([pair(b"general.alignment", 8, string(b"x"))]),
    "tensor beyond the file": file(tensors=[tensor(offset=1)]),
    "offset 2^63": file(tensors=[tensor(offset=2**63)]),
    "axis of 2^60": file(tensors=[tensor(axes=(HUGE,))]),
    "axes that overflow": file(tensors=[tensor(axes=(1 << 32, 1 << 32, 1 << 32))]),
    "axes that overflow to nothing": file(tensors=[tensor(axes=(1 << 32, 1 << 32))]),
    "an axis of 0": file(tensors=[tensor(axes=(0, 2))]),
    "no axes": file(tensors=[tensor(axes=())]),
    "2^31 axes": file(tensors=[tensor(n_axes=1 << 31)]),
    "part of a block": file(tensors=[tensor(axes=(33, 1), kind=8)]),
    "unknown kind": file(tensors=[tensor(kind=9999)]),
    "removed kind": file(tensors=[tensor(kind=4)]),
    "name twice": file(tensors=[tensor(), tensor(offset=32)], data=bytes(64)),
    "overlap": file(tensors=[tensor(), tensor(b"v", offset=16)], data=bytes(64)),
    "overlap of one byte": file(tensors=[tensor(b"v", offset=31), tensor()], data=bytes(64)),
}


def test_the_sound_file_is_read(tmp_path: Path):
    (tmp_path / "x.gguf").write_bytes(SOUND)
    read = GGUFFile(tmp_path / "x.gguf")
    assert read.shape("w") == (2, 4)
    assert read.shape("q") == (2, 32)
    assert read.metadata["nested"] == [[97, 98], [True]]
    assert gguf_tokenizer(read.metadata).encode("ab", special=False)


@pytest.mark.parametrize("case", HOSTILE)
def test_fault_22_wrong_counts_lengths_and_offsets_are_refused(tmp_path: Path, case: str):
    path = tmp_path / "x.gguf"
    path.write_bytes(HOSTILE[case])
    with limits(30, 400), pytest.raises(CheckpointError, match=r"x\.gguf"):
        GGUFFile(path)


def read_all(path: Path) -> None:
    """Either all of it is read, or the error is ours."""
    try:
        read = GGUFFile(path)
        for name in read.names():
            read.read(name)
        gguf_tokenizer(read.metadata).encode("abc")
    except CheckpointError:
        pass


def test_fault_22_a_file_cut_anywhere_is_refused(tmp_path: Path):
    path = tmp_path / "x.gguf"
    with limits():
        for length in range(len(SOUND)):
            path.write_bytes(SOUND[:length])
            with pytest.raises(CheckpointError):
                GGUFFile(path)


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_fault_22_any_byte_changed_gives_our_error_or_a_model(tmp_path: Path, value: int):
    path = tmp_path / "x.gguf"
    with limits():
        for at in range(len(SOUND)):
            path.write_bytes(SOUND[:at] + bytes([value]) + SOUND[at + 1 :])
            read_all(path)


@settings(max_examples=300)
@given(
    at=st.integers(0, len(SOUND) - 8),
    new=st.one_of(st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "little")), st.binary(min_size=1, max_size=8)),
)
def test_fault_22_any_number_changed_gives_our_error_or_a_model(
    at: int, new: bytes, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    path.write_bytes(SOUND[:at] + new + SOUND[at + len(new) :])
    with limits():
        read_all(path)
