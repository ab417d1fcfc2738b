"""Fault 21: Hugging Face folders that are odd, damaged or hostile. A typed error names the thing, nothing is allocated.

The folders are our own exports, with one thing wrong in each.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.limits import limits
from safetensors.torch import load_file, save_file
from torch import Tensor

from cutaway.checkpoints import export, load
from cutaway.errors import CheckpointError, ConfigError, CutawayError
from cutaway.families import build

TEXT = {"vocab_size": 19, "max_len": 8, "n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 32}
BOTH = {"vocab_size": 19, "n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 12}
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert-tiny", {**TEXT, "task": "masked_language_model"}),
    "roberta": ("roberta-base", {**TEXT, "task": "classify", "n_classes": 3}),
    "roformer": ("roformer-small", TEXT),
    "vit": ("vit-ti-16", {"image_size": 8, "patch_size": 4, "n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 12}),
    "gpt": ("gpt", TEXT),
    "gpt2": ("gpt2", TEXT),
    "marian": ("transformer-tiny", {**BOTH, "positions": "sinusoidal_halves", "max_len": 8, "start_id": 1}),
    "llama": ("stories15m", {**TEXT, "n_kv_heads": 1}),
    "mistral": ("stories15m", {**TEXT, "n_kv_heads": 1, "window": 4}),
    "t5": ("t5-small", {**BOTH, "d_head": 4}),
}
FAMILIES = pytest.mark.parametrize("family", TINY)
# What JSON can put in a value's place. Some of it suits some key; none may end in anything but an error of ours.
ODD = ["x", True, None, [1], {"a": 1}, -1, 0.5, 10**9, 10**400, 1e308]


@pytest.fixture
def folder(family: str, tmp_path: Path) -> Path:
    size, numbers = TINY[family]
    export(build(size, seed=0, **numbers), tmp_path)
    return tmp_path


def with_config(folder: Path, **changes: Any) -> Path:
    """Some keys changed; `...` takes a key out."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    return folder


def with_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


@FAMILIES
def test_the_folder_itself_is_sound(folder: Path):
    assert load(folder).n_parameters() > 0


@FAMILIES
def test_fault_21_keys_that_nobody_knows(folder: Path):
    for key in ("auto_map", "_attn_implementation_internal", "quantization_config", "per_layer_config", "whatever"):
        with pytest.raises(ConfigError, match=key):
            load(with_config(folder, **{key: {"AutoModel": "evil.Model"}}))
        with_config(folder, **{key: ...})


@FAMILIES
def test_fault_21_any_value_in_any_key(folder: Path):
    """Every key with every odd value, or without it: an error of ours, or a model."""
    config = json.loads((folder / "config.json").read_text())
    others = []
    for key in config:
        for value in [*ODD, ...]:
            try:
                load(with_config(folder, **config | {key: value}))
            except CutawayError:
                continue
            except Exception as error:
                others.append(f"{key}={value!r} ends in {error!r}")
    assert not others


SIZES = {
    "bert": ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"),
    "roberta": ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
    "roformer": ("hidden_size", "num_hidden_layers", "num_attention_heads", "type_vocab_size"),
    "vit": ("hidden_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size", "num_channels"),
    "gpt": ("n_embd", "n_layer", "n_head", "n_positions", "vocab_size"),
    "gpt2": ("n_embd", "n_layer", "n_head", "n_inner", "vocab_size"),
    "marian": ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
    "llama": ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    "mistral": ("hidden_size", "sliding_window", "num_attention_heads", "num_key_value_heads", "head_dim"),
    "t5": ("d_model", "num_layers", "num_decoder_layers", "num_heads", "d_kv", "d_ff"),
}


@FAMILIES
def test_fault_21_impossible_sizes(family: str, folder: Path):
    config = json.loads((folder / "config.json").read_text())
    for key in SIZES[family]:
        for value in (10**9, -1, 0, "8", 8.0, True, [8]):
            with pytest.raises(CutawayError):
                load(with_config(folder, **config | {key: value}))


def test_the_error_names_the_key_and_the_value(tmp_path: Path):
    export(build("bert-tiny", **TINY["bert"][1]), tmp_path)
    with pytest.raises(ConfigError, match="hidden_size='8'"):
        load(with_config(tmp_path, hidden_size="8"))
    with pytest.raises(ConfigError, match="n_layers=-3"):
        load(with_config(tmp_path, hidden_size=8, num_hidden_layers=-3))
    with pytest.raises(ConfigError, match="d_model=1000000000"):
        load(with_config(tmp_path, hidden_size=10**9, num_hidden_layers=2))


@FAMILIES
def test_a_missing_tensor(folder: Path):
    name = sorted(load_file(folder / "model.safetensors"))[3]
    with pytest.raises(CheckpointError, match=f"lacks '{name}'"):
        load(with_tensors(folder, lambda tensors: tensors.pop(name)))


@FAMILIES
def test_an_extra_tensor(folder: Path):
    with pytest.raises(CheckpointError, match=r"holds 'extra\.weight'"):
        load(with_tensors(folder, lambda tensors: tensors.update({"extra.weight": torch.zeros(3)})))


@FAMILIES
def test_a_wrong_shape_anywhere(folder: Path):
    sound = load_file(folder / "model.safetensors")
    for name, tensor in sound.items():
        for wrong in (
            torch.zeros(*tensor.shape, 1),
            torch.zeros(tensor.shape[0] + 1, *tensor.shape[1:]),
            torch.zeros(()),
        ):
            save_file(sound | {name: wrong}, folder / "model.safetensors")
            with pytest.raises(CheckpointError, match=f"{name}' has shape"):
                load(folder)


@FAMILIES
def test_whole_numbers_are_no_weights(folder: Path):
    """A quantised tensor without its scale would load, and mean nothing."""
    name = sorted(load_file(folder / "model.safetensors"))[0]
    with pytest.raises(CheckpointError, match=f"{name}' holds torch.int8"):
        load(with_tensors(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.int8)})))


@pytest.mark.parametrize(
    ("family", "copy"),
    [
        ("bert", "cls.predictions.decoder.weight"),
        ("bert", "cls.predictions.decoder.bias"),
        ("gpt", "lm_head.weight"),
        ("gpt2", "lm_head.weight"),
        ("marian", "model.encoder.embed_tokens.weight"),
    ],
)
def test_tied_weights_that_differ(folder: Path, copy: str):
    shape = (19,) if copy.endswith("bias") else (19, 8)
    with pytest.raises(CheckpointError, match=f"'{copy}' should repeat"):
        load(with_tensors(folder, lambda tensors: tensors.update({copy: torch.randn(shape)})))


@pytest.mark.parametrize(
    ("family", "table", "shape"),
    [
        ("marian", "model.encoder.embed_positions.weight", (8, 8)),
        ("roformer", "roformer.encoder.embed_positions.weight", (8, 4)),
    ],
)
@pytest.mark.parametrize("wrong", [torch.zeros, lambda shape: torch.zeros(shape).long(), lambda shape: torch.zeros(1)])
def test_a_table_that_is_not_what_we_compute(
    folder: Path, table: str, shape: tuple[int, ...], wrong: Callable[..., Tensor]
):
    with pytest.raises(CheckpointError, match="not the table"):
        load(with_tensors(folder, lambda tensors: tensors.update({table: wrong(shape)})))


@pytest.mark.parametrize("family", ["bert", "gpt2", "vit"])
def test_more_layers_than_the_file_holds(family: str, folder: Path):
    key = {"bert": "num_hidden_layers", "gpt2": "n_layer", "vit": "num_hidden_layers"}[family]
    with pytest.raises(CheckpointError, match=r"lacks '.*\.1\."):
        load(with_config(folder, **{key: 2}))
    size, numbers = TINY[family]
    export(build(size, **numbers | {"n_layers": 2}), folder, force=True)
    with pytest.raises(CheckpointError, match=r"holds '.*\.1\."):
        load(with_config(folder, **{key: 1}))


@FAMILIES
def test_architectures(folder: Path):
    for value in ([], ["NopeModel"], "BertModel", [[]], [7], {}, [None], 3, True):
        with pytest.raises(CutawayError, match="architecture"):
            load(with_config(folder, architectures=value))


@pytest.mark.parametrize("family", ["bert"])
@pytest.mark.parametrize("value", [..., None, 7, [], {}, "nope", "bert\0", "../bert"], ids=str)
def test_model_types(folder: Path, value: Any):
    with pytest.raises(CheckpointError, match="model_type"):
        load(with_config(folder, model_type=value))


@pytest.mark.parametrize("family", ["bert"])
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'"bert"', b"7", b"null", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000],
    ids=lambda content: str(content[:12]),
)
def test_a_config_that_is_no_json_object(folder: Path, content: bytes):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(folder)


@pytest.mark.parametrize("family", ["roberta"])
@pytest.mark.parametrize("labels", [[], "abc", 7, {"0": 1, "1": 2, "2": 3}, {"0": "a", "1": "b", "7": "c"}], ids=str)
def test_labels(folder: Path, labels: Any):
    """Names that cannot be read are left out, as long as it is clear how many there are."""
    if isinstance(labels, dict):
        assert load(with_config(folder, id2label=labels)).config.labels is None
    else:
        with pytest.raises(ConfigError, match="id2label"):
            load(with_config(folder, id2label=labels))


@pytest.mark.parametrize("family", ["roberta"])
def test_a_billion_labels(folder: Path):
    with pytest.raises(ConfigError, match="n_classes=1000000000"):
        load(with_config(folder, id2label=None, num_labels=10**9))


GREEDY: dict[str, tuple[str, dict[str, Any]]] = {
    "wide and deep": ("bert", {"hidden_size": 10**5, "num_hidden_layers": 500, "intermediate_size": 4 * 10**5}),
    "wide": ("bert", {"hidden_size": 10**5}),
    "many words": ("gpt2", {"vocab_size": 2**22, "n_embd": 2**20}),
    "turned": ("roformer", {"hidden_size": 10**5, "embedding_size": 10**5}),
    "long table": ("marian", {"max_position_embeddings": 2**24, "d_model": 2**22}),
    "many pixels": ("vit", {"image_size": 2**22, "patch_size": 2**22, "num_channels": 2**22}),
    "many patches": ("vit", {"image_size": 2**22, "patch_size": 1, "hidden_size": 2**22}),
    "far positions": ("roberta", {"max_position_embeddings": 2**24, "hidden_size": 2**20}),
    "many heads": ("t5", {"d_kv": 2**22, "num_heads": 2**22, "d_model": 2**22}),
    "many kinds": ("llama", {"head_dim": 2**22, "num_attention_heads": 2**22, "hidden_size": 2**22}),
}


@pytest.mark.parametrize("case", GREEDY)
def test_fault_21_nothing_is_allocated_for_what_is_not_there(case: str, tmp_path: Path):
    family, changes = GREEDY[case]
    size, numbers = TINY[family]
    export(build(size, seed=0, **numbers), tmp_path)
    with_config(tmp_path, **changes)
    with limits(megabytes=256), pytest.raises(CutawayError):
        load(tmp_path)
