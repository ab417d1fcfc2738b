"""Models that generate, here and in `transformers`."""

from helpers.parity.tiny_llama import tiny as tiny_llama
from helpers.parity.tiny_t5 import tiny as tiny_t5
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    T5ForConditionalGeneration,
)


def gpt2() -> PreTrainedModel:
    numbers = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40}
    return GPT2LMHeadModel(GPT2Config(vocab_size=53, pad_token_id=0, bos_token_id=1, eos_token_id=2, **numbers))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(tiny_llama(num_key_value_heads=2))


def marian() -> PreTrainedModel:
    both = {"layers": 1, "attention_heads": 4, "ffn_dim": 40}
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in both.items()}
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2}
    return MarianMTModel(
        MarianConfig(vocab_size=53, d_model=24, max_position_embeddings=40, scale_embedding=True, **sides, **ids)
    )


def t5() -> PreTrainedModel:
    return T5ForConditionalGeneration(tiny_t5(num_layers=2))  # its cache has as many layers as the encoder


LAST_NORM = {marian: "model.decoder.layers.0.final_layer_norm", t5: "decoder.final_layer_norm"}
