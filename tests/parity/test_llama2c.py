"""Files of llama2.c, written as its export.py writes them, against the model that they were made from."""

from pathlib import Path

import pytest
import torch
from helpers.parity.foreign_files import write_llama2c
from helpers.parity.twins import assert_close
from parity.test_gguf import made

from cutaway.checkpoints import load


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("version", [0, 1])
def test_logits_are_those_of_the_model_it_was_made_from(tmp_path: Path, version: int, kv_heads: int, tied: bool):
    theirs, ids = made(num_key_value_heads=kv_heads, tie_word_embeddings=tied), torch.randint(3, 53, (2, 12))
    ours = load(write_llama2c(tmp_path / "tiny.bin", theirs, version))
    assert ours.config.tied == tied
    assert_close(ours(ids), theirs(ids).logits, 1e-5)
    assert ours.n_parameters() == sum(p.numel() for p in theirs.parameters())
