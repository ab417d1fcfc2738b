"""Models by name: what the list says is true, a path comes before a name, and what is not there is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from helpers.tiny_models import ALL, tiny
from hypothesis import given
from hypothesis import strategies as st

import cutaway
from cutaway import bundled
from cutaway.bundled.info import front_matter, read_front_matter
from cutaway.checkpoints import load, load_tokenizer, save, tokenizer_of
from cutaway.errors import CheckpointError
from cutaway.tokens.tokenizer_training import train_tokenizer

CARD = {"about": "Writes on: «so»", "license": "CC0-1.0", "score": '1.41 "bits" per byte'}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, and nothing that comes along beside it."""
    monkeypatch.setattr(bundled, "HERE", tmp_path / "none")
    monkeypatch.setenv("CUTAWAY_MODELS", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


@pytest.mark.parametrize("store", [None, "int8", "bf16"])
def test_the_list_says_what_is_there(store: str | None, shelf: Path):
    for name in ALL:
        save(tiny(name, dtype=torch.float32), shelf / name, store=store, shard_size=9000)
    found = cutaway.models()
    assert [model.name for model in found] == sorted(ALL)
    for model in found:
        loaded = cutaway.load(model.name)
        assert model.parameters == loaded.n_parameters()
        assert (model.family, model.task) == (loaded.config.family, loaded.config.task)
        assert model.stored == (store or "fp32")
        assert model.size == sum(file.stat().st_size for file in model.folder.iterdir())
        assert (model.about, model.licence, model.score, model.problem) == (None, None, None, None)


def test_the_card_says_what_it_is_for(shelf: Path):
    save(tiny("gpt2", dtype=torch.float32), shelf / "books")
    (shelf / "books" / "README.md").write_text(front_matter(CARD) + "\n# books\n\nlicense: another\n")
    (found,) = cutaway.models()
    assert (found.about, found.licence, found.score) == tuple(CARD.values())


TEXTS = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), min_size=1).map(str.strip).filter(bool)


@given(st.dictionaries(st.sampled_from(["about", "license", "score"]), TEXTS, min_size=1))
def test_the_top_of_a_card_reads_as_it_was_written_by_us_and_by_yaml(values: dict[str, str]):
    text = front_matter(values)
    assert read_front_matter(text + "# name\n") == values
    assert yaml.safe_load(text.removesuffix("---\n")) == values


@given(st.text())
def test_any_text_may_be_a_card(text: str):
    for card in (text, f"---\n{text}\n---\n"):
        found = read_front_matter(card)
        assert all(value and key == key.strip() for key, value in found.items())
        first = card.removeprefix("\ufeff").split("\n")[0]
        assert first.strip() == "---" or not found


def test_a_card_of_others_is_read_where_a_text_stands_on_its_line():
    text = (
        "---\nlicense: cc-by-4.0\ntags:\n- x\nlanguage: [en, de]\nabout: 'it''s'\n  deeper: no\n# a: b\n---\nscore: 1\n"
    )
    assert read_front_matter(text) == {"license": "cc-by-4.0", "about": "it's"}
    assert read_front_matter("about: x\n") == read_front_matter("---\nabout: x\n") == {}


def test_a_path_comes_before_a_name_and_a_users_folder_before_ours(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ours, other = tmp_path / "ours", tmp_path / "other"
    for place, seed in ((ours, 1), (shelf, 2), (other, 3)):
        save(tiny("gpt2", dtype=torch.float32, seed=seed), place / "books")
    save(tiny("gpt2", dtype=torch.float32), ours / "more")
    monkeypatch.setattr(bundled, "HERE", ours)
    monkeypatch.setenv("CUTAWAY_MODELS", os.pathsep.join([str(tmp_path / "gone"), "", str(shelf), str(other)]))
    assert bundled.names() == {"books": shelf / "books", "more": ours / "more"}
    monkeypatch.chdir(other)
    assert bundled.find("books") == Path("books")
    monkeypatch.chdir(tmp_path)
    assert bundled.find("books") == bundled.find(Path("books")) == shelf / "books"


def test_a_name_gives_the_tokenizer_too(shelf: Path):
    tokenizer = train_tokenizer(["a dog runs"] * 9, kind="word", vocab_size=40)
    save(tiny("gpt2", dtype=torch.float32), shelf / "books", tokenizer)
    assert load_tokenizer("books").encode("a dog") == tokenizer.encode("a dog")
    assert load("books").n_parameters() == load(shelf / "books").n_parameters()


def test_an_unknown_name_lists_what_is_here_and_the_nearest(shelf: Path, tmp_path: Path):
    for name in ("en-de", "books"):
        save(tiny("gpt2", dtype=torch.float32), shelf / name)
    wanted = r"^en-dee does not exist: .*, or a name: books, en-de \(did you mean 'en-de'\?\)$"
    for ask in (load, load_tokenizer, tokenizer_of, cutaway.verify, bundled.find):
        with pytest.raises(CheckpointError, match=wanted):
            ask("en-dee")
    with pytest.raises(CheckpointError, match=r"books, en-de$"):
        load("zzz")
    for path in ("./en-de", tmp_path / "en-de", "shelf/../en-de"):  # whoever writes a / means a path
        with pytest.raises(CheckpointError, match=r"does not exist: give a model's folder or file$"):
            load(path)
    with pytest.raises(CheckpointError, match="a size of that name can be built"):
        load("gpt2")


def test_a_damaged_model_hides_no_other(shelf: Path):
    save(tiny("gpt2", dtype=torch.float32), shelf / "whole")
    for name, config in (("bad", "{"), ("odd", '{"family": 3, "task": []}'), ("empty", '{"family": "gpt2"}')):
        (shelf / name).mkdir()
        (shelf / name / "config.json").write_text(config)
    (shelf / "notes").mkdir()
    (shelf / "file").write_text("")
    found = {model.name: model for model in cutaway.models()}
    assert set(found) == {"bad", "empty", "odd", "whole"}
    assert found["whole"].problem is None
    assert "bad/config.json is not valid JSON" in str(found["bad"].problem)
    assert "model.safetensors.index.json cannot be read" in str(found["empty"].problem)


def test_a_folder_of_others_is_listed_without_a_count_of_parameters(shelf: Path):
    cutaway.export(tiny("gpt2", dtype=torch.float32), shelf / "theirs")
    (found,) = cutaway.models()
    assert (found.family, found.parameters, found.problem) == ("gpt2", None, None)


def test_the_list_needs_no_torch(shelf: Path):
    save(tiny("gpt2", dtype=torch.float32), shelf / "mine", store="int8")
    code = (
        "import sys, cutaway; print('mine' in {m.name for m in cutaway.models()}, {'torch', 'numpy'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True set()\n"


def test_a_folder_that_merely_has_a_models_name_hides_it_not(shelf: Path, tmp_path: Path, monkeypatch):
    save(tiny("gpt2", dtype=torch.float32), shelf / "books")
    monkeypatch.chdir(tmp_path)
    Path("books").mkdir()
    assert bundled.find("books") == shelf / "books"
    (Path("books") / "config.json").write_text("{}")
    assert bundled.find("books") == Path("books")
