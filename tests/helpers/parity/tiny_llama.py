"""A tiny Llama of `transformers`."""

from typing import Any

from transformers import LlamaConfig


def tiny(**changes: Any) -> LlamaConfig:
    numbers: dict[str, Any] = {
        "vocab_size": 53,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
    }
    return LlamaConfig(**numbers | changes)
