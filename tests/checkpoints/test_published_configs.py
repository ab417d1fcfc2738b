"""Config values like those of published models (written down from their papers and cards, not fetched) make their sizes."""

from typing import Any

import pytest

from cutaway.checkpoints import names_llama, names_t5
from cutaway.checkpoints.hf import Keys
from cutaway.families import config_of

LLAMA = {
    "attention_bias": False,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "model_type": "llama",
    "pretraining_tp": 1,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.42.3",
    "use_cache": True,
}
SMOLLM2 = LLAMA | {
    "architectures": ["LlamaForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "vocab_size": 49152,
}
LLAMA31 = LLAMA | {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_kv": 64,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "vocab_size": 32128,
}
T5_SMALL = T5 | {
    "d_ff": 2048,
    "d_model": 512,
    "n_positions": 512,
    "num_heads": 8,
    "num_layers": 6,
    "task_specific_params": {"summarization": {"early_stopping": True, "prefix": "summarize: "}},
}
T5_V11_BASE = T5 | {
    "d_ff": 2048,
    "d_model": 768,
    "feed_forward_proj": "gated-gelu",
    "num_decoder_layers": 12,
    "num_heads": 12,
    "num_layers": 12,
    "tie_word_embeddings": False,
}
SIZES: dict[str, tuple[Any, dict[str, Any], str, dict[str, Any]]] = {
    "SmolLM2-135M": (names_llama, SMOLLM2, "smollm2-135m", {"pad_id": 2, "start_id": 1, "end_ids": [2]}),
    "Llama-3.1-8B": (
        names_llama,
        LLAMA31,
        "llama3-8b",
        {
            "max_len": 131072,
            "rotary_scaling": "llama3",
            "rotary_scaling_numbers": [8.0, 1.0, 4.0, 8192.0],
            "start_id": 128000,
            "end_ids": [128001, 128008, 128009],
        },
    ),
    "Mistral-7B-v0.1": (names_llama, MISTRAL, "mistral-7b", {"start_id": 1, "end_ids": [2]}),
    "t5-small": (names_t5, T5_SMALL, "t5-small", {"pad_id": 0, "start_id": 0, "end_ids": [1]}),
    "t5-v1_1-base": (  # without its tensors nobody can tell that it is untied
        names_t5,
        T5_V11_BASE,
        "t5-v1.1-base",
        {"pad_id": 0, "start_id": 0, "end_ids": [1], "tied": True},
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_it_is_the_size_of_its_name(name: str):
    names, values, size, changes = SIZES[name]
    keys = Keys(values, name)
    config = names.config_in(keys, names.ARCHITECTURES[values["architectures"][0]])
    keys.finish()
    assert config == config_of(size).with_(**changes)
