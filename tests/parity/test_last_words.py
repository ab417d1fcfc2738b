"""LAMBADA against `transformers`: the numbers of a loop written with their model, one passage at a time."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.parity.twins import twins_of
from helpers.tokenizers_of_bytes import byte_level
from transformers import GPT2Config, LlamaConfig

from cutaway.evaluation import LastWord, evaluate
from cutaway.evaluation.winograd import Schema, readings

PASSAGES = [LastWord("I ate an", "apple"), LastWord("The quick brown fox", "jumps"), LastWord("a b c", "d")]
CASES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        GPT2Config(vocab_size=400, n_positions=64, n_embd=24, n_layer=2, n_head=3, bos_token_id=2, eos_token_id=2)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        LlamaConfig(
            vocab_size=400, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, bos_token_id=1, eos_token_id=2, max_position_embeddings=64,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_last_words_and_readings_are_theirs(tmp_path: Path, case: str):
    both, tokenizer = twins_of(CASES[case](), tmp_path, torch.float32), byte_level()
    report = evaluate(both.ours, tokenizer, PASSAGES, start=False, resamples=0)
    losses, rights = [], []
    for passage in PASSAGES:
        context = tokenizer.encode(passage.context, special=False)
        whole = tokenizer.encode(f"{passage.context} {passage.word}", special=False)
        word = whole[len(context) :]
        with torch.no_grad():
            scores = both.theirs(torch.tensor([whole[:-1]])).logits[0, -len(word) :].log_softmax(dim=-1)
        losses.append(-scores.gather(1, torch.tensor(word)[:, None]).sum().item())
        rights.append(scores.argmax(dim=-1).tolist() == word)
    assert report.scores["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert report.scores["accuracy"] == np.mean(rights)

    schema = Schema("The man saw it because ", " was late.", ("the man", "it"), 0)
    found = readings(both.ours, tokenizer, [schema], before="So: ", start=False)["partial"][0]
    n = len(tokenizer.encode(schema.after, special=False))
    for candidate, score in enumerate(found):
        ids = torch.tensor([tokenizer.encode("So: " + schema.reading(candidate), special=False)])
        with torch.no_grad():
            log_p = both.theirs(ids).logits[0, :-1].log_softmax(dim=-1).gather(1, ids[0, 1:, None])[:, 0]
        assert score == pytest.approx(log_p[-n:].sum().item(), rel=1e-5)
