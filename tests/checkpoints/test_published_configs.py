"""Config values like those of published models (written from knowledge of them, not fetched) make their sizes."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from cutaway.checkpoints import hf_bert, hf_gpt, hf_gpt2, hf_llama, hf_marian, hf_roberta, hf_roformer, hf_t5, hf_vit
from cutaway.checkpoints.hf import MODEL_TYPES, read_config, write_config
from cutaway.checkpoints.hf_config import HFConfig
from cutaway.errors import ConfigError
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
OPUS_MT_EN_DE = {
    "_name_or_path": "/tmp/Helsinki-NLP/opus-mt-en-de",
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0,
    "bad_words_ids": [[58100]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 512,
    "decoder_attention_heads": 8,
    "decoder_ffn_dim": 2048,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 6,
    "decoder_start_token_id": 58100,
    "decoder_vocab_size": 58101,
    "dropout": 0.1,
    "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 6,
    "eos_token_id": 0,
    "extra_pos_embeddings": 58101,
    "forced_eos_token_id": 0,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_length": 512,
    "max_position_embeddings": 512,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 6,
    "pad_token_id": 58100,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "transformers_version": "4.22.0.dev0",
    "use_cache": True,
    "vocab_size": 58101,
}
ENCODER = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
}
BERT = ENCODER | {
    "architectures": ["BertForMaskedLM"],
    "gradient_checkpointing": False,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}
ROBERTA = ENCODER | {
    "architectures": ["RobertaForMaskedLM"],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514,
    "model_type": "roberta",
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
ROFORMER = ENCODER | {
    "architectures": ["RoFormerForMaskedLM"],
    "embedding_size": 768,
    "gradient_checkpointing": False,
    "max_position_embeddings": 1536,
    "model_type": "roformer",
    "pad_token_id": 0,
    "rotary_value": False,
    "transformers_version": "4.5.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 50000,
}
SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}
GPT = SUMMARY | {
    "afn": "gelu",
    "architectures": ["OpenAIGPTLMHeadModel"],
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "openai-gpt",
    "n_ctx": 512,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 512,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    "vocab_size": 40478,
}
GPT2 = SUMMARY | {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}
VIT = ENCODER | {
    "_name_or_path": "google/vit-base-patch16-224-in21k",
    "architectures": ["ViTForImageClassification"],
    "attention_probs_dropout_prob": 0.0,
    "encoder_stride": 16,
    "hidden_dropout_prob": 0.0,
    "id2label": {str(i): f"class {i}" for i in range(1000)},
    "image_size": 224,
    "label2id": {f"class {i}": i for i in range(1000)},
    "model_type": "vit",
    "num_channels": 3,
    "patch_size": 16,
    "qkv_bias": True,
    "transformers_version": "4.13.0.dev0",
}
SIZES: dict[str, tuple[Any, dict[str, Any], str, dict[str, Any]]] = {
    "SmolLM2-135M": (hf_llama, SMOLLM2, "smollm2-135m", {"pad_id": 2, "start_id": 1, "end_ids": [2]}),
    "Llama-3.1-8B": (
        hf_llama,
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
    "Mistral-7B-v0.1": (hf_llama, MISTRAL, "mistral-7b", {"start_id": 1, "end_ids": [2]}),
    "t5-small": (hf_t5, T5_SMALL, "t5-small", {"pad_id": 0, "start_id": 0, "end_ids": [1]}),
    "t5-v1_1-base": (  # without its tensors nobody can tell that it is untied
        hf_t5,
        T5_V11_BASE,
        "t5-v1.1-base",
        {"pad_id": 0, "start_id": 0, "end_ids": [1], "tied": True},
    ),
    "opus-mt-en-de": (  # without its tensors nobody can tell that its output has a bias
        hf_marian,
        OPUS_MT_EN_DE,
        "transformer-base",
        {
            "vocab_size": 58101,
            "max_len": 512,
            "activation": "silu",
            "positions": "sinusoidal_halves",
            "pad_id": 58100,
            "start_id": 58100,
            "end_ids": [0],
        },
    ),
    "bert-base-uncased": (hf_bert, BERT, "bert-base", {"task": "masked_language_model", "pad_id": 0}),
    "roberta-base": (hf_roberta, ROBERTA, "roberta-base", {"pad_id": 1, "start_id": 0, "end_ids": [2]}),
    "roformer_chinese_base": (hf_roformer, ROFORMER, "roformer-base", {"pad_id": 0}),
    "openai-gpt": (hf_gpt, GPT, "gpt", {}),
    "gpt2": (hf_gpt2, GPT2, "gpt2", {"start_id": 50256, "end_ids": [50256]}),
    "vit-base-patch16-224": (hf_vit, VIT, "vit-b-16", {"labels": [f"class {i}" for i in range(1000)]}),
}


@pytest.mark.parametrize("name", SIZES)
def test_it_is_the_size_of_its_name(name: str):
    names, values, size, changes = SIZES[name]
    keys = HFConfig(values, name)
    config = names.read_config(keys, names.ARCHITECTURES[values["architectures"][0]])
    keys.finish()
    assert config == config_of(size).with_(**changes)


@pytest.mark.parametrize("name", SIZES)
def test_what_is_written_of_it_is_read_as_the_same(name: str):
    """All its numbers, and each of several tokens that end a text."""
    names, values, size, changes = SIZES[name]
    config = config_of(size).with_(**{"task": names.ARCHITECTURES[values["architectures"][0]]} | changes)
    keys = HFConfig(write_config(config), name)
    again = names.read_config(keys, names.ARCHITECTURES[keys.get("architectures")[0]])
    keys.finish()
    own = {"d_head": config.d_model // config.n_heads} if names is hf_llama else {}  # which is written out
    assert again == config.with_(**own)


@pytest.mark.parametrize("ends", [None, (2,), (2, 5), (5, 2, 9)])
def test_ends_are_written_as_others_read_them(ends: tuple[int, ...] | None):
    """One as a number, several as a list, in their order; none as null."""
    written = write_config(config_of("stories15m").with_(end_ids=ends))["eos_token_id"]
    assert written == {None: None, (2,): 2, (2, 5): [2, 5], (5, 2, 9): [5, 2, 9]}[ends]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_number_that_a_config_leaves_out_is_the_one_that_transformers_takes(model_type: str, tmp_path: Path):
    """None is stated here, and all of them are there: early configs name but a few."""
    stated = AutoConfig.for_model(model_type).to_dict()
    stated = {name: value for name, value in stated.items() if name not in ("id2label", "label2id")}  # made up by then
    for name, values in (("bare", {"model_type": model_type}), ("full", stated)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(values))
    bare, full = (read_config(tmp_path / name) for name in ("bare", "full"))
    own = {"d_head": bare.d_model // bare.n_heads} if model_type in ("llama", "mistral") else {}
    assert bare.with_(**own) == full


@pytest.mark.parametrize("name", ["normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"])
def test_a_marian_that_computes_otherwise_is_still_refused(name: str):
    with pytest.raises(ConfigError, match=f"{name}=True is not supported"):
        hf_marian.read_config(HFConfig(OPUS_MT_EN_DE | {name: True}, "config.json"), "translate")


OTHERWISE: dict[str, dict[str, Any]] = {  # what a folder may say that would be another computation
    "bert": {"is_decoder": True, "position_embedding_type": "relative_key", "pruned_heads": {"0": [1]},
             "pooler_type": "mean"},
    "roberta": {"is_decoder": True, "position_embedding_type": "relative_key"},
    "roformer": {"rotary_value": True, "embedding_size": 64, "is_decoder": True},
    "openai-gpt": {"n_special": 40},
    "gpt2": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "llama": {"mlp_bias": True, "rope_interleaved": True},
    "marian": {"static_position_embeddings": False, "share_encoder_decoder_embeddings": False},
    "vit": {"pooler_act": "relu", "pooler_output_size": 5},
    "t5": {"is_decoder": True, "new_key": 1},
    "mistral": {"is_decoder": True, "new_key": 1},
}  # fmt: skip


@pytest.mark.parametrize(("model_type", "key"), [(name, key) for name, keys in OTHERWISE.items() for key in keys])
def test_what_would_be_another_computation_is_refused_by_name(model_type: str, key: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, key: OTHERWISE[model_type][key]}))
    with pytest.raises(ConfigError, match=key):
        read_config(tmp_path)


WORDS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "silu": "silu",
         "swish": "silu", "tanh": "tanh"}  # fmt: skip
SAID_AS = {"bert": "hidden_act", "roberta": "hidden_act", "roformer": "hidden_act", "gpt2": "activation_function",
           "vit": "hidden_act", "marian": "activation_function", "llama": "hidden_act"}  # fmt: skip


def config_with(folder: Path, model_type: str, **values: Any) -> Any:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **values}))
    return read_config(folder)


@pytest.mark.parametrize("model_type", SAID_AS)
def test_every_word_for_an_activation_is_read(model_type: str, tmp_path: Path):
    for word, ours in WORDS.items():
        assert config_with(tmp_path, model_type, **{SAID_AS[model_type]: word}).activation == ours
    with pytest.raises(ConfigError, match="mish"):
        config_with(tmp_path, model_type, **{SAID_AS[model_type]: "mish"})


def test_labels_come_in_the_order_of_their_numbers_and_one_alone_is_a_number_to_predict(tmp_path: Path):
    asked = {"architectures": ["BertForSequenceClassification"]}
    config = config_with(tmp_path, "bert", **asked, id2label={"1": "no", "0": "yes", "2": "maybe"})
    assert (config.task, config.n_classes, config.labels) == ("classify", 3, ("yes", "no", "maybe"))
    assert config_with(tmp_path, "bert", **asked).n_classes == 2  # what their library means without any
    assert config_with(tmp_path, "bert", **asked, num_labels=5).n_classes == 5
    assert config_with(tmp_path, "bert", **asked, num_labels=1).task == "regress"
    assert config_with(tmp_path, "bert", **asked, id2label={"0": "score"}).task == "regress"
    tagger = config_with(tmp_path, "bert", architectures=["BertForTokenClassification"], id2label={"0": "O", "1": "B"})
    assert (tagger.task, tagger.labels) == ("tag", ("O", "B"))


def test_an_id_outside_of_the_vocabulary_stands_for_none(tmp_path: Path):
    ids = {"pad_token_id": 50, "bos_token_id": -1, "eos_token_id": [3, 50, 49]}
    config = config_with(tmp_path, "gpt2", vocab_size=50, **ids)
    assert (config.pad_id, config.start_id, config.end_ids) == (None, None, (3, 49))
    config = config_with(tmp_path, "gpt2", vocab_size=50, pad_token_id=0, bos_token_id=49, eos_token_id=0)
    assert (config.pad_id, config.start_id, config.end_ids) == (0, 49, (0,))


@pytest.mark.parametrize(("key", "ours"), [("image_size", "image_size"), ("patch_size", "patch_size")])
def test_the_side_of_a_square_may_be_said_twice(key: str, ours: str, tmp_path: Path):
    assert getattr(config_with(tmp_path, "vit", **{key: [32, 32]}), ours) == 32
    with pytest.raises(ConfigError, match="only squares are"):
        config_with(tmp_path, "vit", **{key: [32, 16]})
    with pytest.raises(ConfigError, match="only squares are"):
        config_with(tmp_path, "vit", **{key: [32]})
