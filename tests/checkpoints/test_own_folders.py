"""`save` and `import_model` replace a model of ours, all its files at once, and nothing that others wrote."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.faults.kill_before import RENAMES, kill_before
from helpers.tiny_models import tiny

from cutaway.checkpoints import export, import_model, load, load_tokenizer, save
from cutaway.errors import InputError
from cutaway.tokens import train_tokenizer


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def words(n: int):
    return train_tokenizer([" ".join(map(str, range(n)))], kind="word")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "model-00001-of-2.safetensors"])
def test_what_is_no_model_of_ours_is_refused(tmp_path: Path, name: str):
    (tmp_path / name).write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "notes").write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path} has a {name} that Cutaway did not write: name another"):
        save(tiny("gpt2", dtype=torch.float32), tmp_path)
    assert everything(tmp_path) == before
    with pytest.raises(InputError, match="notes is a file: name a folder to write"):
        save(tiny("gpt2", dtype=torch.float32), tmp_path / "notes")


def test_a_model_of_ours_is_saved_again_and_keeps_its_tokenizer_and_the_users_files(tmp_path: Path):
    save(tiny("gpt2", dtype=torch.float32), tmp_path, words(9))
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").write_text("mine")
    model = tiny("gpt2", dtype=torch.float32, seed=1)
    save(model, tmp_path)
    assert all(map(torch.equal, load(tmp_path).parameters(), model.parameters()))
    assert load_tokenizer(tmp_path).vocab_size == words(9).vocab_size
    assert ((tmp_path / "README.md").read_text(), (tmp_path / "run" / "log").read_text()) == ("mine", "mine")


def test_import_asks_for_force_as_export_does(tmp_path: Path):
    save(tiny("gpt2", dtype=torch.float32), tmp_path / "a")
    export(tiny("gpt2", dtype=torch.float32, seed=1), tmp_path / "b", words(9))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes").write_text("mine")
    for folder in ("b", "c"):
        before = everything(tmp_path / folder)
        with pytest.raises(InputError, match=r"is not empty|holds other files and no model"):
            import_model(tmp_path / "a", tmp_path / folder)
        assert everything(tmp_path / folder) == before
    import_model(tmp_path / "a", tmp_path / "b", force=True)
    assert set(everything(tmp_path / "b")) == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("run", [False, True])
def test_a_kill_never_leaves_new_weights_with_an_old_tokenizer(tmp_path: Path, run: bool):
    """Before every rename, link and removal; also where a folder in it keeps the two from changing places."""
    old, new = (tiny("gpt2", dtype=torch.float32, seed=seed, n_layers=1) for seed in (0, 1))
    place, number = tmp_path / "model", -1
    found = set()
    while True:
        number += 1
        save(old, place, words(9))
        if run:
            (place / "run").mkdir(exist_ok=True)
        if not kill_before(lambda: save(new, place, words(19)), number, RENAMES):
            break
        weights = next(load(place).parameters())
        seed = [torch.equal(weights, next(model.parameters())) for model in (old, new)].index(True)
        assert load_tokenizer(place).vocab_size == words(9 + 10 * seed).vocab_size, number
        found.add(seed)
    assert found == {0, 1}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


FILES_OF_A_MODEL = """
    model.safetensors model.safetensors.index.json model-00001-of-00002.safetensors config.json generation_config.json
    preprocessor_config.json certificate.json tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json
    merges.txt vocab.txt tokenizer.model model.bin vocabulary.json shared_vocabulary.json source_vocabulary.json
    target_vocabulary.json model.onnx encoder.onnx decoder.onnx model.onnx.data encoder.onnx.data decoder.onnx.data
""".split()


@pytest.mark.parametrize("write", [export, import_model])
def test_nothing_of_an_earlier_model_stays_beside_a_new_one(tmp_path: Path, write: Any):
    """Its certificate would speak of other weights, and its tokenizer would be read as the new one's."""
    model = tiny("gpt2", dtype=torch.float32)
    save(model, tmp_path / "new")
    (tmp_path / "old").mkdir()
    for name in FILES_OF_A_MODEL:
        (tmp_path / "old" / name).write_text("{}")
    for name in ("README.md", "certificate.txt", "model.txt", "notes.json"):
        (tmp_path / "old" / name).write_text("mine")
    write(model if write is export else tmp_path / "new", tmp_path / "old", force=True)
    left = {name for name, data in everything(tmp_path / "old").items() if data == b"{}"}
    assert left == set()
    assert {name for name, data in everything(tmp_path / "old").items() if data == b"mine"} == {
        "README.md", "certificate.txt", "model.txt", "notes.json"
    }  # fmt: skip


@pytest.mark.parametrize("name", FILES_OF_A_MODEL)
def test_a_file_of_a_model_of_others_keeps_ours_away(tmp_path: Path, name: str):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=f"has a {re.escape(name)} that Cutaway did not write"):
        save(tiny("gpt2", dtype=torch.float32), tmp_path)
    assert everything(tmp_path) == {name: b"{}"}
