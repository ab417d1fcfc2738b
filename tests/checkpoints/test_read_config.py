"""The config of a model on disk, without its weights, is the config of the model."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from helpers import tiny_models as tiny
from helpers.model_places import PLACES

from cutaway.checkpoints import export, load, read_config, save
from cutaway.checkpoints.hf import read_published
from cutaway.errors import CheckpointError, CutawayError

EXPORTED = [name for name in tiny.ALL if not name.startswith("transformer")]  # 2017's own positions have no layout


@pytest.mark.parametrize("name", tiny.ALL)
def test_our_own_folder(name: str, tmp_path: Path):
    model = tiny.tiny(name)
    save(model, tmp_path)
    assert read_config(tmp_path) == model.config


@pytest.mark.parametrize("name", EXPORTED)
def test_a_hugging_face_folder_with_its_weights_and_without(name: str, tmp_path: Path):
    export(tiny.tiny(name, dtype=torch.float32, **({"d_ff": 96} if name == "gpt" else {})), tmp_path)
    config = load(tmp_path).config
    found = read_published(tmp_path)
    assert read_config(tmp_path) == found.config == config
    assert found.source is not None
    (tmp_path / "model.safetensors").unlink()
    assert read_config(tmp_path) == config
    assert read_published(tmp_path).source is None
    with pytest.raises(CheckpointError, match=r"holds no model\.safetensors"):
        load(tmp_path)


def test_what_the_config_leaves_open_the_stored_tensors_tell(tmp_path: Path):
    export(tiny.tiny("t5", dtype=torch.float32, tied=False), tmp_path)
    assert read_config(tmp_path) == load(tmp_path).config
    assert read_config(tmp_path).to_dict()["tied"] is False


@pytest.mark.parametrize("place", PLACES)
def test_every_other_layout(place: str, tmp_path: Path):
    path = PLACES[place](tmp_path / "there")
    assert read_config(path) == load(path).config


def test_a_config_that_says_everything(tmp_path: Path):
    """Older files write every default down, those of other networks included."""
    values = transformers.BertConfig(num_hidden_layers=2, architectures=["BertForMaskedLM"]).to_dict()
    values |= {"is_decoder": False, "pruned_heads": {}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert (read_config(tmp_path).family, read_config(tmp_path / "config.json").task) == (
        "bert",
        "masked_language_model",
    )


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"model_type": "gpt2", "auto_map": {"AutoModel": "evil.py"}}, "auto_map"),
        ({"model_type": "gpt2", "new_trick": 1}, "new_trick"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder"),
        ({"family": "gpt2", "layers": 3}, "layers"),
    ],
)
def test_what_we_cannot_compute_is_refused_by_name(values: dict, named: str, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CutawayError, match=named):
        read_config(tmp_path)


def test_a_place_without_a_model_is_refused(tmp_path: Path):
    (tmp_path / "other.json").write_text("{}")
    for path in (tmp_path, tmp_path / "other.json", tmp_path / "absent.gguf"):
        with pytest.raises(CheckpointError, match=r"reads folders with a config\.json"):
            read_config(path)


def test_a_training_run_that_has_not_ended_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "begun.json").touch()
    for read in (read_config, load):
        with pytest.raises(CheckpointError, match=r"has not ended.*`cutaway train … --out .* --resume`"):
            read(tmp_path)
    (tmp_path / "run" / "begun.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(tmp_path)
