"""Tiny language models with tokenizers of bytes and letters."""

from functools import cache

import tokenizers
import torch
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from tokenizers import decoders, models

from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

START, END = 1, 2


byte_level_once = cache(byte_level)


def speaker(**changes) -> Model:
    ids = {"start_id": START, "end_ids": (END,), "vocab_size": 400, "max_len": 96, "tied": False}
    return tiny("gpt2", **{"dtype": torch.float32, **ids, **changes})


@cache
def byte_fallback() -> Tokenizer:
    """As Llama's: ▁ for a space, a token for every byte, and one space in front that is taken away again."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{byte:02X}>": 3 + byte for byte in range(256)}}
    for piece in ("▁", "a", "b", "▁a", "▁the", "▁ate", "▁I", "fox"):
        vocab[piece] = len(vocab)
    backend = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    backend.add_special_tokens(["<s>", "</s>"])
    backend.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend)


@cache
def letters() -> Tokenizer:
    pieces = ["a", "b", "c", "ab", "bc", "ca", "abc", "cc", "abcc"]
    backend = tokenizers.Tokenizer(models.WordLevel({piece: id for id, piece in enumerate(pieces)}, "a"))
    backend.decoder = decoders.Fuse()
    return Tokenizer(backend)
