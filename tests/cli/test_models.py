"""`cutaway models` and `cutaway pack`; every command takes a model by its name."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from typer.testing import CliRunner, Result

from cutaway import bundled, cli, pack
from cutaway.bundled.info import front_matter
from cutaway.checkpoints import load, save
from cutaway.tokens.tokenizer_training import train_tokenizer

WORDS = "the dog runs and barks at a man in the park while it rains on the old house".split()


def cutaway(*args: object) -> Result:
    return CliRunner().invoke(cli.app, list(map(str, args)), env={"COLUMNS": "100"})


def asked(*args: object) -> Any:
    ran = cutaway(*args, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models by name, and a place to stand where none lies."""
    monkeypatch.setattr(bundled, "HERE", tmp_path / "none")
    monkeypatch.setenv("CUTAWAY_MODELS", str(tmp_path / "shelf"))
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    tokenizer = train_tokenizer([" ".join(WORDS)] * 9, kind="word", vocab_size=50)
    numbers = {"vocab_size": tokenizer.vocab_size, "start_id": 1, "end_ids": (2,), "pad_id": 0}
    save(tiny("gpt2", dtype=torch.float32, **numbers), tmp_path / "shelf" / "books", tokenizer, store="int8")
    save(tiny("transformer", dtype=torch.float32, **numbers), tmp_path / "shelf" / "en-de", tokenizer, shard_size=9000)
    values = {"about": "Writes on.", "license": "CC0-1.0", "score": "1.41 bits per byte"}
    (tmp_path / "shelf" / "books" / "README.md").write_text(front_matter(values))
    return tmp_path / "shelf"


def test_models_are_listed(shelf: Path, monkeypatch: pytest.MonkeyPatch):
    head, books, en_de = cutaway("models").stdout.splitlines()
    assert head.split() == "name what it does parameters on disk licence score".split()
    for words in ("books", "Writes on.", " k ", "kB int8", "CC0-1.0", "1.41 bits per byte"):
        assert words in books
    for words in ("en-de", "transformer · translate", "kB fp32", "–"):
        assert words in en_de
    first, second = asked("models")
    assert first["name"] == "books"
    assert first["parameters"] == load("books").n_parameters()
    assert second["folder"] == str(shelf / "en-de")
    next(shelf.glob("en-de/model-00001-*")).write_bytes(b"")
    assert "cannot be read: " in cutaway("models").stdout
    monkeypatch.delenv("CUTAWAY_MODELS")
    assert "no model is available by name: set CUTAWAY_MODELS" in cutaway("models").stdout


def test_every_command_takes_a_name(shelf: Path, tmp_path: Path):
    (tmp_path / "text.txt").write_text(" ".join(WORDS))
    folder = str(shelf / "books")
    short = ("--max-tokens", "2")
    assert asked("generate", "the dog", "--model", "books", *short)["model"] == folder
    assert asked("generate", "the dog", "--model", "books", "--draft", "books", *short)["draft"] == folder
    assert asked("evaluate", "books", tmp_path / "text.txt", "--resamples", "0")["model"] == folder
    assert asked("tokenizer", "show", "books", "the dog")["model"] == folder
    assert asked("describe", "books")["parameters"] == load(folder).n_parameters()
    assert asked("export", "books", tmp_path / "hf")["from"] == folder
    assert asked("import", "books", tmp_path / "own")["family"] == "gpt2"
    assert asked("embed", "the dog", "--model", "books")
    assert asked("translate", "the dog runs", "--model", "en-de", "--beam", "1")
    assert asked("verify", "books", "--quick")["file"] == str(shelf / "books" / "certificate.json")
    assert asked("verify", "books", "--check")["stale"] == []


@pytest.mark.parametrize(
    "args",
    [
        ("generate", "the dog", "--model", "boks"),
        ("translate", "the dog", "--model", "boks"),
        ("evaluate", "boks", "x.txt"),
        ("verify", "boks"),
        ("export", "boks", "out"),
        ("pack", "boks", "out"),
        ("tokenizer", "show", "boks", "the"),
        ("describe", "boks"),
    ],
)
def test_an_unknown_name_is_named_with_the_nearest(args: tuple[str, ...]):
    ran = cutaway(*args)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "books, en-de (did you mean 'books'?)" in ran.stderr


def test_a_recipe_starts_from_a_name_and_what_it_makes_is_listed(shelf: Path):
    Path("text.txt").write_text(f"{' '.join(WORDS)}\n" * 40)
    recipe = """
about = "Goes on\\nwith books."
licence = "CC-BY-4.0"
[model]
start = "books"
[data]
train = ["text.txt"]
valid_share = 0.2
seq_len = 8
[train]
steps = 2
rows = 2
"""
    Path("recipe.toml").write_text(recipe)
    ran = cutaway("train", "recipe.toml", "--out", shelf / "new")
    assert ran.exit_code == 0, ran.output
    found = next(model for model in asked("models") if model["name"] == "new")
    assert (found["about"], found["licence"]) == ("Goes on with books.", "CC-BY-4.0")
    assert found["score"].endswith(" on the validation examples")
    Path("recipe.toml").write_text(recipe.replace('"books"', '"boks"'))
    ran = cutaway("train", "recipe.toml", "--out", shelf / "newer")
    assert ran.exit_code == 2
    assert "models by name are books, en-de, new (did you mean 'books'?)" in ran.stderr


def test_pack_writes_a_smaller_folder_with_its_card_and_says_what_it_costs(shelf: Path, tmp_path: Path):
    (shelf / "en-de" / "README.md").write_text("# en-de\n")
    (shelf / "en-de" / "certificate.json").write_text("{}")
    out = tmp_path / "out"
    found = asked("pack", "en-de", out, "--shard-size", "0.01")
    assert (found["dtype"], found["from"]) == ("int8", str(shelf / "en-de"))
    assert found["agreement"]["difference"] > 0
    assert found["agreement"]["holds"]
    assert {"README.md", "config.json", "tokenizer.json", "model.safetensors.index.json"} < found["files"].keys()
    assert set(found["files"]) == {file.name for file in out.iterdir()}
    assert "certificate.json" not in found["files"]
    weights = sum(size for name, size in found["files"].items() if name.endswith(".safetensors"))
    assert weights < 2 * found["parameters"]
    agreement = pack("en-de", tmp_path / "python", shard_size=10_000)
    assert {**asdict(agreement), "holds": True} == found["agreement"] | {"notes": ()}
    for file in out.iterdir():
        assert file.read_bytes() == (tmp_path / "python" / file.name).read_bytes()
    assert cutaway("pack", "en-de", out).exit_code == 2
    ran = cutaway("pack", "en-de", out, "--store", "bf16", "--force", "--no-tokenizer")
    assert ran.exit_code == 0, ran.output
    assert "numbers from weights in bf16 match the model's" in ran.stdout
    assert {file.name for file in out.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    assert "--shard-size" in cutaway("pack", "en-de", out, "--force", "--shard-size", "0").stderr
