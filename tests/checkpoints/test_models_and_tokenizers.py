"""A model and its tokenizer travel together: from every layout to our folder, and out to `transformers`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers import tiny_models as tiny
from helpers.model_places import PLACES, hf_place, llama2c_place
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers
from transformers import AutoTokenizer

from cutaway.checkpoints import export, import_model, load, load_tokenizer, save
from cutaway.checkpoints.hf_tokenizer import exported_tokenizer
from cutaway.checkpoints.tensors import open_tensors
from cutaway.errors import CheckpointError, InputError
from cutaway.tokens import Tokenizer

TEXT = "ab c a bca"


@pytest.mark.parametrize("place", PLACES)
def test_import_brings_both(tmp_path: Path, place: str):
    source = PLACES[place](tmp_path / "source")
    import_model(source, tmp_path / "own")
    before, after = load_tokenizer(source), load_tokenizer(tmp_path / "own")
    ids = before.encode(TEXT)
    assert ids[0] == 1
    assert len(ids) < len(TEXT)
    assert after.encode(TEXT) == ids
    assert after.decode(ids) == TEXT
    assert after.roles == before.roles
    ours, again = load(source), load(tmp_path / "own")
    assert again.config == ours.config
    assert torch.equal(again(torch.tensor([ids])), ours(torch.tensor([ids])))


@pytest.mark.parametrize("place", PLACES)
def test_export_writes_a_tokenizer_that_autotokenizer_loads(tmp_path: Path, place: str):
    source = PLACES[place](tmp_path / "source")
    tokenizer = load_tokenizer(source)
    export(load(source), tmp_path / "out", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(TEXT).input_ids == tokenizer.encode(TEXT)
    assert (theirs.bos_token, theirs.eos_token, theirs.unk_token) == ("<s>", "</s>", "<unk>")


def test_a_model_without_a_tokenizer_is_imported_without(tmp_path: Path):
    source = llama2c_place(tmp_path / "source")
    (source.parent / "tokenizer.bin").unlink()
    import_model(source, tmp_path / "own")
    load(tmp_path / "own")
    for place in (source, tmp_path / "own"):
        with pytest.raises(CheckpointError, match="has no tokenizer"):
            load_tokenizer(place)


def test_a_tokenizer_that_is_not_read_can_be_left_behind(tmp_path: Path):
    source = hf_place(tmp_path / "source")
    (source / "tokenizer.json").rename(source / "source.spm")
    with pytest.raises(CheckpointError, match=r"source\.spm is a SentencePiece model.*tokenizer=False"):
        import_model(source, tmp_path / "own")
    assert not (tmp_path / "own").exists()
    import_model(source, tmp_path / "own", tokenizer=False, dtype=torch.bfloat16)
    assert sorted(file.name for file in (tmp_path / "own").iterdir()) == ["config.json", "model.safetensors"]
    weights, half = load(source).state_dict(), load(tmp_path / "own", dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(half[name], weight.bfloat16()) for name, weight in weights.items())
    assert open_tensors(tmp_path / "own").dtype("embedding.tokens.weight") == torch.bfloat16


def test_a_model_is_replaced_when_that_is_asked_for(tmp_path: Path):
    folder = tmp_path / "out"
    export(tiny.tiny("gpt2"), folder, words(10))
    (folder / "notes.txt").write_text("mine")
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"is not empty: .*force=True"):
        export(tiny.tiny("gpt2", seed=1), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    export(tiny.tiny("gpt2", seed=1), folder, force=True)
    assert (folder / "model.safetensors").read_bytes() != before
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(InputError, match="holds other files and no model"):
        export(tiny.tiny("gpt2"), tmp_path / "photos", force=True)


def words(n: int) -> Tokenizer:
    backend = Backend(models.WordLevel({f"w{id_}": id_ for id_ in range(n)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return Tokenizer(backend)


@pytest.mark.parametrize("name", ["transformer-rotary", "gpt"])
def test_what_a_layout_has_no_words_for_leaves_nothing_behind(name: str, tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"layout has.*or export with to=ctranslate2 or to=onnx"):
        export(tiny.tiny(name), tmp_path / "out", words(10))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("write", [save, export])
def test_a_model_without_numbers_leaves_nothing_behind(write: Callable[..., None], tmp_path: Path):
    with pytest.raises(CheckpointError, match="is on the meta device"):
        write(tiny.tiny("gpt2").to("meta"), tmp_path / "out", words(10))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("write", [save, export])
def test_what_is_not_written_to_the_end_leaves_nothing(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def disk_full(tokenizer: Tokenizer, folder: Path) -> None:
        raise CheckpointError("No space left on device")

    monkeypatch.setattr(Tokenizer, "write", disk_full)
    with pytest.raises(CheckpointError, match="No space"):
        write(tiny.tiny("gpt2"), tmp_path, words(10))
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path: Path):
    model = load(llama2c_place(tmp_path / "source"))
    for write in (save, export, partial(export, to="onnx"), partial(export, to="ctranslate2")):
        with pytest.raises(CheckpointError, match="the tokenizer has 267 tokens, but the model knows 266"):
            write(model, tmp_path / "out", words(model.config.vocab_size + 1))
    assert not (tmp_path / "out").exists()


def test_a_chat_template_goes_with_a_tokenizer_that_is_changed_on_the_way(tmp_path: Path):
    """`transformers` is told what stands around a text; a translator's tags take the space behind them."""
    backend = Backend(models.WordLevel({"a": 0, "<sos>": 1, "<eos>": 2, "<2de>": 3}, unk_token="a"))
    backend.add_special_tokens(["<sos>", "<eos>", "<2de>"])
    tokenizer = Tokenizer(backend, chat_template="{{ messages }}")
    for name in ("gpt2", "transformer"):
        found = exported_tokenizer(tokenizer, tiny.tiny(name, start_id=1, end_ids=(2,)).config)
        assert found is not tokenizer
        assert found.chat_template == "{{ messages }}"
