"""Folders with tiny models for the commands that look inside, and how these are run."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers.classifiers import classifier
from helpers.classifiers import wordpiece as its_words
from helpers.masked_models import masked, wordpiece
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from PIL import Image
from typer.testing import CliRunner, Result

from cutaway import cli
from cutaway.checkpoints import save
from cutaway.tokens import Tokenizer
from cutaway.tokens.tokenizer_training import train_tokenizer

TEXT = "the old man's naïve dog ran, and"
ASKED = {
    "gpt2": TEXT,
    "llama": TEXT,
    "translator": "I ate an apple.",
    "bert": "the [MASK] barked .",
    "label": "a good film",
}
MORE = {"translator": ["--target", "a dog"]}  # what a random model would say is long


def pieces() -> Tokenizer:
    return train_tokenizer([TEXT + " the cat sat down."] * 3, kind="bpe", vocab_size=280)


def write_models(folder: Path) -> dict[str, Path]:
    """One of each kind, and a picture beside them."""
    made: dict[str, Any] = {
        name: (tiny(name, vocab_size=280, max_len=64, dtype=torch.float32), pieces()) for name in ("gpt2", "llama")
    }
    made["translator"] = (quick(), byte_level())
    made["bert"] = (masked(dtype=torch.float32), wordpiece())
    made["label"] = (classifier(dtype=torch.float32), its_words())
    made["vit"] = (tiny("vit", dtype=torch.float32), None)
    made["hidden"] = (tiny("bert", task="hidden", dtype=torch.float32), wordpiece())
    for name, (model, tokenizer) in made.items():
        save(model, folder / name, tokenizer)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / "a.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / "b.png")
    return {name: folder / name for name in made} | {"a.png": folder / "a.png", "b.png": folder / "b.png"}


def run(*args: object) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, args)])


def said(*args: object) -> str:
    ran = run(*args)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran.stdout


def data(*args: object) -> Any:
    return json.loads(said(*args, "--json"))


def failed(*args: object) -> str:
    ran = run(*args)
    assert ran.exit_code == 2, ran.output
    assert ran.stderr.startswith(("error:", "Usage:"))
    return ran.stderr


def check_page(path: Path, *kinds: str) -> str:
    """A page asks nobody for anything, and has these kinds of pictures."""
    page = path.read_text()
    assert "default-src 'none'" in unescape(page)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", page)
    assert not re.findall(r"url\((?!['\"]?data:)|@import|https?://(?!www\.w3\.org)", page)
    found = re.findall(r'class="cutaway-data">\{"kind":"([a-z ]+)"', page)
    assert found == list(kinds), found
    return page
