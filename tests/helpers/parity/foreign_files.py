"""Tiny files of other tools, written as those tools write them: GGUF by llama.cpp's rules, llama2.c by its export.py.

The rules come from their sources, the names from the `gguf` package; nothing here asks Cutaway.
"""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM


def neighbours(weight: Tensor, n_heads: int) -> Tensor:
    """llama.cpp's `permute` and llama2.c's `permute_reverse`: pairs that are turned together stand side by side."""
    return weight.reshape(n_heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def heads_of(name: str, config: LlamaConfig) -> int | None:
    """How many heads a tensor's rows are cut into, if its rows are turned."""
    if ".q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".k_proj." in name else None


def gguf_metadata(config: LlamaConfig) -> dict[str, Any]:
    return {
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.block_count": config.num_hidden_layers,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": config.rope_parameters["rope_theta"],
        "llama.rope.dimension_count": config.head_dim,
        "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def gguf_tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The tensors under llama.cpp's names, rows in llama.cpp's order."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        heads = heads_of(name, model.config)
        rows = tensor if heads is None else neighbours(tensor, heads)
        tensors[names.get_name(name, (".weight", ".bias"))] = rows.float().numpy()
    return tensors


def write_gguf(
    path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray], kind: str = "F32", architecture: str = "llama"
) -> Path:
    """A GGUF file whose matrices are quantised as `kind`."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[type(value)](key, value)
    for name, numbers in tensors.items():
        if kind == "F32" or numbers.ndim == 1:
            writer.add_tensor(name, numbers)
        else:
            wanted = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, quantised(numbers, kind), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantised(numbers: np.ndarray, kind: str) -> np.ndarray:
    """The numbers as blocks; of kinds that the package only reads, blocks of random bits with a small scale."""
    wanted = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quants.quantize(numbers, wanted)
    except NotImplementedError:
        block, n_bytes = gguf.GGML_QUANT_SIZES[wanted]
        generator = np.random.default_rng(numbers.size)
        blocks = generator.integers(0, 256, (numbers.size // block, n_bytes), dtype=np.uint8)
        scales = {"Q6_K": slice(-2, None), "Q4_K": slice(0, 4)}[kind]  # where a block keeps its fp16 numbers
        width = blocks[:, scales].shape[1]
        blocks[:, scales] = np.full(width // 2, 1e-3, "<f2").view(np.uint8)
        return blocks.reshape(len(numbers), -1)


def write_llama2c(path: Path, model: LlamaForCausalLM, version: int) -> Path:
    """A file as llama2.c's export.py writes it: `legacy_export` (version 0) or `version1_export`."""
    c = model.config
    state = {name: tensor.float() for name, tensor in model.state_dict().items()}
    for name, tensor in state.items():
        if (heads := heads_of(name, c)) is not None:
            state[name] = neighbours(tensor, heads)

    def layers(ending: str) -> list[Tensor]:
        return [state[f"model.layers.{layer}.{ending}.weight"] for layer in range(c.num_hidden_layers)]

    attention = [f"self_attn.{x}_proj" for x in "qkvo"]
    mlp = ["mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"]  # w1, w2, w3
    norms = layers("input_layernorm"), layers("post_attention_layernorm")
    matrices = [[*layers(name)] for name in (*attention, *mlp)]
    final, embedding = [state["model.norm.weight"]], [state["model.embed_tokens.weight"]]
    output = [] if c.tie_word_embeddings else [state["lm_head.weight"]]
    numbers = [c.hidden_size, c.intermediate_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads]
    if version == 0:
        vocab_size = c.vocab_size if c.tie_word_embeddings else -c.vocab_size
        head = struct.pack("<7i", *numbers, vocab_size, c.max_position_embeddings)
        angles = [np.full(c.max_position_embeddings * c.head_dim, np.nan, "f4")]  # nobody may read them
        parts = [embedding, norms[0], *matrices[:4], norms[1], *matrices[4:], final, angles, output]
    else:
        head = struct.pack("<Ii7iB", 0x616B3432, 1, *numbers, c.vocab_size, c.max_position_embeddings, not output)
        head = head.ljust(256, b"\0")
        parts = [*norms, final, embedding, *matrices, output]
    data = [np.asarray(tensor, dtype="<f4").tobytes() for part in parts for tensor in part]
    path.write_bytes(head + b"".join(data))
    return path
