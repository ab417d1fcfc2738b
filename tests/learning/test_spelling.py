"""A small Transformer learns to copy words and to spell them backwards, through a recipe, from files."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from cutaway.checkpoints import load, load_tokenizer
from cutaway.decoding import greedy_translate
from cutaway.model.model import EncoderDecoderModel
from cutaway.training.recipe_file import recipe_from
from cutaway.training.train import train

LONGEST, TESTED = 8, 300


def words(n: int) -> list[str]:
    random = Random(0)
    found = {"".join(random.choices("abcdefghij", k=random.randint(2, LONGEST))) for _ in range(n)}
    return sorted(found, key=lambda word: random.random())


def recipe_for(folder: Path) -> dict[str, Any]:
    return {
        "model": {
            "size": "transformer-tiny", "n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": 48, "n_heads": 2,
            "d_ff": 96, "dropout": 0.0,
        },
        "tokenizer": {"kind": "char"},
        "data": {"root": str(folder), "format": "parallel", "train": ["read", "write"], "seq_len": LONGEST + 2},
        "objective": {"kind": "translate"},
        "train": {"steps": 400, "tokens": 1024, "threads": 1},
        "optimizer": {"kind": "muon", "rate": 3e-3, "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": 50},
    }  # fmt: skip


@pytest.mark.parametrize("step", [pytest.param(1, id="copy", marks=pytest.mark.long), pytest.param(-1, id="reversal")])
def test_words_that_were_never_seen_are_spelt_right(step: int, tmp_path: Path) -> None:
    """More than 99 % of 300 words, every letter of them; by chance one of 10² … 10⁸."""
    every = words(6000)
    seen, new = every[:-TESTED], every[-TESTED:]
    (tmp_path / "read").write_text("\n".join(seen))
    (tmp_path / "write").write_text("\n".join(word[::step] for word in seen))
    train(recipe_from(recipe_for(tmp_path)), tmp_path / "out")
    model, tokenizer = load(tmp_path / "out"), load_tokenizer(tmp_path / "out")
    assert isinstance(model, EncoderDecoderModel)
    rows = [[*tokenizer.encode(word), tokenizer.eos_id] for word in new]
    ids = torch.zeros(TESTED, LONGEST + 1, dtype=torch.long)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    real = torch.arange(LONGEST + 1) < torch.tensor([len(tokens) for tokens in rows])[:, None]
    written = greedy_translate(model, ids, n=LONGEST + 1, real=real).tolist()
    right = sum(tokenizer.decode(row) == word[::step] for row, word in zip(written, new, strict=True))
    assert right > 0.99 * TESTED
