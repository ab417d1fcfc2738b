"""Tiny models of every family, and what came before, with weights large enough that a wrong turn shows."""

from typing import Any

import torch
from torch import Tensor

from cutaway.families import build
from cutaway.model.model import Model

VOCAB = 50
SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer-tiny", {"n_encoder_layers": 2, "n_decoder_layers": 2, "n_heads": 4, "d_ff": 48}),
    "transformer-pre-norm": (
        "transformer-tiny",
        {"n_encoder_layers": 2, "n_decoder_layers": 2, "n_heads": 4, "d_ff": 48, "wiring": "pre_norm"},
    ),
    "transformer-rotary": (
        "transformer-tiny",
        {"n_encoder_layers": 1, "n_decoder_layers": 2, "n_heads": 4, "d_ff": 48, "positions": "rotary"},
    ),
    "t5": ("t5-small", {"n_encoder_layers": 2, "n_decoder_layers": 2, "n_heads": 4, "d_head": 6, "d_ff": 48}),
    "bert": ("bert-tiny", {"n_layers": 2, "n_heads": 4, "d_ff": 48, "task": "masked_language_model"}),
    "roberta": ("roberta-base", {"n_layers": 2, "n_heads": 4, "d_ff": 48}),
    "roformer": ("roformer-base", {"n_layers": 2, "n_heads": 4, "d_ff": 48}),
    "gpt": ("gpt", {"n_layers": 2, "n_heads": 4, "d_ff": 48}),
    "gpt2": ("gpt2", {"n_layers": 2, "n_heads": 4, "d_ff": 48}),
    "llama": ("stories15m", {"n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 48}),
    "llama-window": ("stories15m", {"n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 48, "window": 3}),
    "vit": ("vit-ti-16", {"n_layers": 2, "n_heads": 4, "d_ff": 48, "image_size": 8, "patch_size": 4, "n_classes": 7}),
}
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {"n_layers": 2}),
    "lstm-translator": ("lstm-translator", {"n_encoder_layers": 2}),
}
TRANSLATORS = ["transformer", "transformer-pre-norm", "transformer-rotary", "t5"]
ENCODERS = ["bert", "roberta", "roformer"]
DECODERS = ["gpt", "gpt2", "llama", "llama-window"]
READERS = ENCODERS + DECODERS  # whatever reads one sequence of tokens
ALL = list(SIZES)


def tiny(name: str, *, dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> Model:
    size, numbers = (SIZES | RECURRENT)[name]
    numbers = {"d_model": 24, **numbers, **changes}
    if name != "vit":
        numbers.setdefault("vocab_size", VOCAB)
        if name not in ("t5", *RECURRENT):
            numbers.setdefault("max_len", 32)
    model = build(size, seed=seed, dtype=dtype, **numbers).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():  # biases and norms too: a term that is 0 or 1 would hide
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        parameter.data += noise * (0.25 if parameter.ndim > 1 else 0.1)
    return model


def some_ids(batch: int, seq: int, *, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (batch, seq), generator=torch.Generator().manual_seed(seed))


def inputs(name: str, *, batch: int = 2, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Something that the family reads."""
    if name == "vit":
        return (torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(dtype),)
    if name in TRANSLATORS:
        return some_ids(batch, 7, seed=1), some_ids(batch, 6, seed=2)
    return (some_ids(batch, 7, seed=1),)


def close(ours: Tensor, theirs: Tensor) -> bool:
    """Within 1e-5 of the largest number in single precision, 1e-10 in double."""
    tolerance = 1e-10 if theirs.dtype == torch.float64 else 1e-5
    return bool((ours - theirs).abs().max() <= tolerance * theirs.abs().max().clamp(min=1))
