"""A tiny Mistral of `transformers`."""

from typing import Any

from transformers import MistralConfig


def tiny(window: int | None = 5, **changes: Any) -> MistralConfig:
    return MistralConfig(
        vocab_size=53,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        sliding_window=window,
        pad_token_id=0,
        **changes,
    )
