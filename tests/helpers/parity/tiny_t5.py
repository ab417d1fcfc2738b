"""A tiny T5 of `transformers`."""

from typing import Any

from transformers import T5Config


def tiny(**changes: Any) -> T5Config:
    numbers: dict[str, Any] = {
        "vocab_size": 53,
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_layers": 1,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "decoder_start_token_id": 0,
    }
    return T5Config(**numbers | changes)
