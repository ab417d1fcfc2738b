"""Byte-level BPE from GGUF metadata: how words are cut, and what surrounds them."""

import json

import pytest
import tokenizers
from helpers.token_reference import byte_level_bpe, ranks_of
from helpers.varied_texts import FRAGMENTS, varied_texts
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_WORDS

from cutaway.tokens import Tokenizer, gguf_tokenizer
from cutaway.tokens.gguf import AS_LLAMA3, AS_QWEN2, SINGLE_DIGITS, WORDS

LLAMA3_WORDS = QWEN2_WORDS.replace(r"\p{N}|", r"\p{N}{1,3}|")


def learn() -> tuple[list[str], list[str]]:
    """Tokens and merges, learnt from the fragments."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|start|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*FRAGMENTS * 2, "2024 2024 123 123"], trainer)
    vocab = backend.get_vocab()
    merges = json.loads(backend.to_str())["model"]["merges"]
    return sorted(vocab, key=lambda token: vocab[token]), [" ".join(merge) for merge in merges]


TOKENS, MERGES = learn()
IDS = {token: id for id, token in enumerate(TOKENS)}


def build(pre: str | None = None, **more: object) -> Tokenizer:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(TOKENS) - 2)],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    return gguf_tokenizer(metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()})


@pytest.mark.parametrize("pre", [None, "gpt-2", *SINGLE_DIGITS])
def test_words_are_cut_and_merged_as_the_algorithm_says(pre: str | None):
    tokenizer, rank = build(pre), ranks_of(MERGES)
    for text in varied_texts():
        expected = byte_level_bpe(text, IDS, rank, single_digits=pre in SINGLE_DIGITS)
        assert tokenizer.encode(text) == expected, text


@pytest.mark.parametrize("pre", ["gpt-2", "smollm"])
@given(text=st.text())
def test_every_text_comes_back(pre: str, text: str):
    tokenizer = TOKENIZERS[pre]
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text


TOKENIZERS = {pre: build(pre) for pre in ("gpt-2", "smollm")}


def test_single_digits_stay_single():
    assert "2024" not in build("gpt-2") or len(build("gpt-2").encode("2024")) < 4
    assert [build("smollm").token(id) for id in build("smollm").encode("2024")] == list("2024")


def test_llama3_and_qwen2_cut_words_by_their_published_patterns():
    assert WORDS.replace("DIGITS", "3") == LLAMA3_WORDS
    one_digit = WORDS.replace("{1,DIGITS}", "")
    assert one_digit == QWEN2_WORDS
    for name in AS_LLAMA3 + AS_QWEN2:
        tokenizer = build(name, add_bos_token=False)
        split = tokenizer.backend.pre_tokenizer.pre_tokenize_str("a 12345 b's")
        digits = ["123", "45"] if name in AS_LLAMA3 else ["1", "2", "3", "4", "5"]
        assert [word for word, _ in split] == ["a", "Ġ", *digits, "Ġb", "'s"]
        if name in AS_LLAMA3:
            assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in varied_texts())


def test_qwen2_composes_characters_first():
    assert build("qwen2").encode("e\u0301") == build("qwen2").encode("é")
    assert build("gpt-2").encode("e\u0301") != build("gpt-2").encode("é")


def test_roles_come_by_id_and_special_tokens_are_never_cut():
    tokenizer = build("gpt-2", padding_token_id=1)
    assert tokenizer.roles == {"bos": "<|start|>", "eos": "<|end|>", "pad": "<|end|>"}
    assert tokenizer.encode("a<|end|>b")[1] == 1
    assert tokenizer.decode(tokenizer.encode("a<|end|>b")) == "ab"
    assert tokenizer.decode(tokenizer.encode("a<|end|>b"), skip_special=False) == "a<|end|>b"


def test_bos_is_added_where_the_file_says_so_and_for_llama3():
    assert build("gpt-2").encode("a") == [IDS["a"]]
    assert build("gpt-2", add_bos_token=True).encode("a") == [0, IDS["a"]]
    assert build("llama-bpe").encode("a") == [0, IDS["a"]]
    assert build("llama-bpe", add_bos_token=False).encode("a") == [IDS["a"]]


def test_the_chat_template_comes_along():
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.merges": MERGES,
    }
    assert gguf_tokenizer(metadata).chat_template is None
    assert gguf_tokenizer(metadata | {"tokenizer.chat_template": "{{ messages }}"}).chat_template == "{{ messages }}"
    assert gguf_tokenizer(metadata | {"tokenizer.chat_template": 5}).chat_template is None
