import json
import os
import subprocess
import sys

import pytest
import transformers
from helpers import tiny_models as tiny
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import save
from cutaway.files import write_json
from cutaway.pictures.terminal_text import human


def describe(*args: str):
    return CliRunner().invoke(cli.app, ["describe", *args], env={"COLUMNS": "80"})


def found(*args: str) -> dict:
    result = describe(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_gpt2_at_a_glance():
    lines = describe("gpt2").stdout.splitlines()
    assert lines[0] == "gpt2  family gpt2 · task language_model · 124,439,808 parameters"
    rows = {" ".join(line.split()) for line in lines}
    assert "├─ tokens 50257 × 768 38,597,376 31.0 %" in rows
    assert "├─ 0…11 × 12 12 × 7,087,872 68.3 % 72.9 %" in rows
    assert "│ │ └─ output 768 × 768 + 768 12 × 590,592 5.7 % 5.0 %" in rows
    assert "head = embedding.tokens tied 27.1 %" in rows
    assert "products with weights 247 MFLOP 253 GFLOP" in rows
    assert "key/value cache, 73.7 kB a token – 75.5 MB" in rows


def test_depth_cuts_the_tree():
    assert "tokens" in describe("gpt2", "--depth", "2", "--length", "8").stdout
    assert "├─" not in describe("gpt2", "--depth", "1", "--length", "8").stdout


def test_numbers_can_be_changed():
    smaller = found("gpt2", "--set", "n_layers=2", "--set", "tied=false", "--set", "activation=relu", "--length", "8")
    config = smaller["config"]
    assert (config["n_layers"], config["tied"], config["activation"]) == (2, False, "relu")
    assert (smaller["model"], smaller["length"], smaller["dtype"]) == ("gpt2", 8, "float32")


def test_batch_and_dtype_count():
    one, four = found("gpt2", "--length", "8"), found("gpt2", "--length", "8", "--batch", "4", "--dtype", "bfloat16")
    assert four["n_tokens"] == 4 * one["n_tokens"]
    assert four["memory"]["weights"] * 2 == one["memory"]["weights"]
    assert four["memory"]["cache"] == 2 * one["memory"]["cache"]


def test_a_translator_says_both_lengths():
    page = describe("transformer-tiny", "--length", "20", "--source-length", "30", "--batch", "2").stdout
    assert "work for 2 × (30 source + 20 target) tokens" in page


def test_a_picture_fixes_its_length():
    assert "1 × 197 tokens: a picture of 224 × 224" in describe("vit-ti-16").stdout
    wrong = describe("vit-ti-16", "--length", "100")
    assert wrong.exit_code == 2
    assert "always reads 197 positions" in wrong.stderr


def test_our_own_folder_is_described_without_its_weights(tmp_path):
    model = tiny.tiny("gpt2")
    save(model, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    assert found(str(tmp_path / "m"))["parameters"] == model.n_parameters()


def test_a_published_folder_is_described_without_its_weights(tmp_path):
    theirs = transformers.GPT2Config(n_layer=2, n_embd=24, n_head=4, vocab_size=50, n_positions=32)
    theirs.architectures = ["GPT2LMHeadModel"]
    theirs.save_pretrained(tmp_path)
    here = found(str(tmp_path))
    assert here["parameters"] == transformers.GPT2LMHeadModel(theirs).num_parameters()
    assert here["length"] == 32


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gtp2"], "'gtp2' is no file or folder, and no named size; sizes are called gpt2"),
        (["gpt2", "--length", "2000"], "a sequence of 2000 tokens is longer than max_len=1024"),
        (["gpt2", "--set", "n_heads=7"], "d_model=768 is not divisible by n_heads=7"),
        (["gpt2", "--set", "layers=7"], "unknown key 'layers'"),
        (["gpt2", "--set", "n_layers"], "write NAME=VALUE"),
        (["gpt2", "--source-length", "7"], "reads no source"),
    ],
)
def test_wrong_input_is_named(args, message):
    result = describe(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_folder_without_a_model_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert "reads folders with a config.json" in describe(str(tmp_path)).stderr
    write_json(tmp_path / "config.json", {"model_type": "mamba"})
    assert "model_type='mamba'" in describe(str(tmp_path)).stderr


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "transformer-base", "t5-small", "llama2-7b", "vit-b-16"])
@pytest.mark.parametrize("width", [80, 120])
def test_the_page_fits_its_width(name, width):
    result = CliRunner().invoke(cli.app, ["describe", name], env={"COLUMNS": str(width)})
    assert max(map(len, result.stdout.splitlines())) <= width
    rows = [line for line in result.stdout.splitlines() if line.startswith(("├", "│", "└"))]
    assert all(any(letter.isalpha() or letter.isdigit() for letter in line[:20]) for line in rows)  # none was wrapped


def test_piped_output_is_plain():
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", "describe", "bert-tiny"]
    ran = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True, timeout=120)
    assert ran.stderr == ""
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (73_728, "73.7 kB"), (999_999, "1.00 MB"), (124.4e6, "124 MB"),
     (9.996e6, "10.0 MB"), (99.96e9, "100 GB"), (5e18, "5000 PB")],
)  # fmt: skip
def test_numbers_for_people(n, text):
    assert human(n, "B") == text
