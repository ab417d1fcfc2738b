"""Files of llama2.c, written as its export.py writes them, against the model that they were made from."""

from pathlib import Path

import pytest
import torch
from helpers.parity.foreign_files import write_llama2c
from helpers.parity.gguf_llama import made
from helpers.parity.twins import assert_close

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


@pytest.mark.parametrize("version", [0, 1])
def test_a_text_ends_where_another_begins_or_at_its_own_end(tmp_path: Path, version: int):
    """In training, stories stood one behind the other, each with a start token before it."""
    ours = load(write_llama2c(tmp_path / "tiny.bin", made(), version)).config
    assert (ours.start_id, ours.end_ids, ours.norm_eps, ours.window) == (1, (1, 2), 1e-5, None)
    assert (ours.rotary_base, ours.rotary_scaling) == (10000.0, None)
    small = load(
        write_llama2c(tmp_path / "small.bin", made(vocab_size=2, bos_token_id=0, eos_token_id=1), version)
    ).config
    assert (small.start_id, small.end_ids) == (None, None)  # too few tokens for those of SentencePiece
