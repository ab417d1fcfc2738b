"""SentencePiece's BPE from pieces and scores, against the merging of llama2.c written out."""

import struct

import pytest
from helpers.sentencepiece_models import SCORES, TOKENS, WORDS, from_gguf
from helpers.token_reference import best_score_merge
from hypothesis import assume, given
from hypothesis import strategies as st

from cutaway.tokens import Tokenizer, llama2c_tokenizer

IDS = {token: id for id, token in enumerate(TOKENS)}


def from_llama2c(raw_bytes: bool) -> Tokenizer:
    """As written by llama2.c: ▁ is a space; older files hold the bytes themselves."""
    data = struct.pack("<I", 10)
    for id, token in enumerate(TOKENS):
        text = bytes([id - 3]) if raw_bytes and 3 <= id < 259 else token.replace("▁", " ").encode()
        data += struct.pack("<fi", SCORES.get(token, 0.0), len(text)) + text
    return llama2c_tokenizer(data, len(TOKENS))


@pytest.fixture(scope="module", params=["gguf", "llama2.c", "old llama2.c"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return from_gguf() if request.param == "gguf" else from_llama2c(request.param.startswith("old"))


@given(text=st.one_of(st.text(alphabet="abn e", max_size=20), st.text(max_size=20)))
def test_the_best_scoring_neighbours_merge_first(text: str, tokenizer: Tokenizer):
    assume(not any(token in text for token in tokenizer.special_ids()))
    assert tokenizer.encode(text, special=False) == best_score_merge(text, SCORES, IDS)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_every_text_comes_back(text: str, tokenizer: Tokenizer):
    assume(not any(token in text for token in tokenizer.special_ids()))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_space_stands_before_every_text_and_bos_before_that(tokenizer: Tokenizer):
    assert tokenizer.encode("a") == [1, IDS["▁a"]]
    assert tokenizer.encode(" a") == [1, IDS["▁▁"], IDS["a"]]
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("日")[2:] == [IDS["<0xE6>"], IDS["<0x97>"], IDS["<0xA5>"]]
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)


def test_text_that_spells_a_byte_or_a_special_piece_is_text():
    more = [*"<0x41>", "<0", "<0x", "<0x4", "<0x41"]
    tokens = TOKENS + more
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(WORDS + more)]
    tokenizer = from_gguf(tokens=tokens, scores=[SCORES.get(token, 0.0) for token in tokens], token_type=kinds)
    assert tokenizer.encode("<0x41>", special=False) == [tokens.index(piece) for piece in ("▁", "<0x41", ">")]
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


def test_places_are_those_of_the_text(tokenizer: Tokenizer):
    encoded = tokenizer.encode_full("ab ana", special=False)
    assert [("ab ana"[start:stop], token) for (start, stop), token in zip(encoded.offsets, encoded.tokens, strict=True)]
    assert encoded.offsets[-1][1] == 6


def test_what_surrounds_a_text_is_as_the_metadata_say():
    assert from_gguf(add_bos_token=False).encode("a") == [IDS["▁a"]]
    assert from_gguf(add_eos_token=True).encode("a") == [1, IDS["▁a"], 2]
    assert from_gguf(add_space_prefix=False).encode("a") == [1, IDS["a"]]
    assert from_gguf(add_space_prefix=False).decode([1, IDS["▁a"]]) == " a"
    pair = from_gguf(add_eos_token=True).encode_pair("a", "b")
    assert pair.ids == [1, IDS["▁a"], 2, 1, IDS["▁b"], 2]
    assert pair.segments == [0, 0, 0, 1, 1, 1]


def test_a_user_defined_token_is_never_cut():
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(WORDS)]
    kinds[IDS["anan"]] = 4
    assert IDS["anan"] in from_gguf(token_type=kinds).encode("banana")
