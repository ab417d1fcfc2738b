"""Models with their tokenizers, in each kind of folder and file that is read."""

import struct
from pathlib import Path
from typing import Any

from helpers.parity.foreign_files import gguf_metadata, gguf_tensors, write_gguf, write_llama2c
from helpers.parity.gguf_llama import made

from cutaway.checkpoints import export, load, load_tokenizer

WORDS = ["<unk>", "<s>", "</s>", *"▁abc", "▁a", "ab", "bc"]


def pieces() -> list[str]:
    """A vocabulary in SentencePiece's order: three special tokens, 256 bytes, then pieces."""
    return [*WORDS[:3], *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS[3:]]


def llama2c_place(folder: Path) -> Path:
    folder.mkdir()
    tokens = pieces()
    data = struct.pack("<i", 10)
    for id_, token in enumerate(tokens):
        text = token.replace("▁", " ").encode()
        data += struct.pack("<fi", -float(id_), len(text)) + text
    (folder / "tokenizer.bin").write_bytes(data)
    theirs = made(vocab_size=len(tokens), num_key_value_heads=2)
    return write_llama2c(folder / "tiny.bin", theirs, 0)


def gguf_place(folder: Path) -> Path:
    folder.mkdir()
    tokens = pieces()
    theirs = made(vocab_size=len(tokens), num_key_value_heads=2)
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(id_) for id_ in range(len(tokens))],
        "tokenizer.ggml.token_type": kinds,
    }
    return write_gguf(folder / "tiny.gguf", gguf_metadata(theirs.config) | metadata, gguf_tensors(theirs))


def hf_place(folder: Path) -> Path:
    path = gguf_place(folder.with_name("before"))
    export(load(path), folder, load_tokenizer(path))
    return folder


PLACES = {"llama2.c": llama2c_place, "gguf": gguf_place, "hugging face": hf_place}
