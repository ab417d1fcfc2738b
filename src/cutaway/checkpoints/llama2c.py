"""The models of Karpathy's llama2.c (stories15M and its siblings): Llama with Meta's names, seven numbers as config."""

from pathlib import Path

import torch

from cutaway.checkpoints.hf_llama import head_heights
from cutaway.checkpoints.layout import Joined, Layout, LayoutRule, Same, Turned, read_weights
from cutaway.checkpoints.llama2c_file import Llama2cFile
from cutaway.checkpoints.tensors import seems_to_be
from cutaway.errors import CheckpointError, ConfigError
from cutaway.families import bare
from cutaway.families.llama import LlamaConfig
from cutaway.files import MEGABYTE, read_bytes
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer, llama2c_tokenizer

START, END = 1, 2  # of SentencePiece's vocabularies; in training each story was followed by the start of the next


def read_config(path: Path) -> LlamaConfig:
    return config_in(open_llama2c(path))


def read_tokenizer(path: Path) -> Tokenizer | None:
    """The tokenizer beside the model."""
    file = path.parent / "tokenizer.bin"
    if not file.exists():
        return None
    vocab_size = open_llama2c(path).config["vocab_size"]
    return llama2c_tokenizer(read_bytes(file, 64 * MEGABYTE), vocab_size, str(file))


def load_model(path: Path, *, dtype: torch.dtype, device: torch.device | str) -> Model:
    """A model from a llama2.c file."""
    source = open_llama2c(path)
    try:
        config = config_in(source)
        model = bare(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return read_weights(model, layout(config), source, dtype=dtype, device=device)


def open_llama2c(path: Path) -> Llama2cFile:
    """The file, once its header agrees with its length; otherwise an error that says what the file seems to be."""
    try:
        return Llama2cFile(path)
    except CheckpointError as error:
        kind = seems_to_be(path) if path.is_file() else None
        raise CheckpointError(f"{path} is not a llama2.c model: {kind}") if kind else error from None


def config_in(source: Llama2cFile) -> LlamaConfig:
    numbers = source.config
    special = numbers["vocab_size"] > END
    return LlamaConfig(
        vocab_size=numbers["vocab_size"],
        max_len=numbers["seq_len"],
        n_layers=numbers["n_layers"],
        d_model=numbers["dim"],
        n_heads=numbers["n_heads"],
        n_kv_heads=numbers["n_kv_heads"],
        d_ff=numbers["hidden_dim"],
        norm_eps=1e-5,
        tied=source.tied,
        start_id=START if special else None,
        end_ids=(START, END) if special else None,
    )


def layout(c: LlamaConfig) -> Layout:
    rules: dict[str, LayoutRule] = {
        "embedding.tokens.weight": Same("token_embedding_table"),
        "decoder.final_norm.weight": Same("rms_final_weight"),
    }
    for layer in range(c.n_layers):
        ours = f"decoder.{layer}"
        query_key_value = [Turned(f"wq.{layer}", c.n_heads), Turned(f"wk.{layer}", c.n_kv_heads), Same(f"wv.{layer}")]
        rules |= {
            f"{ours}.attention_norm.weight": Same(f"rms_att_weight.{layer}"),
            f"{ours}.attention.query_key_value.weight": Joined(query_key_value, head_heights(c)),
            f"{ours}.attention.output.weight": Same(f"wo.{layer}"),
            f"{ours}.feed_forward_norm.weight": Same(f"rms_ffn_weight.{layer}"),
            f"{ours}.feed_forward.gate_up.weight": Joined([Same(f"w1.{layer}"), Same(f"w3.{layer}")], [c.d_ff] * 2),
            f"{ours}.feed_forward.down.weight": Same(f"w2.{layer}"),
        }
    if not c.tied:
        rules["head.weight"] = Same("wcls")
    return Layout(rules)
