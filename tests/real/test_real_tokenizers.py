"""Tokenizers that people use: MiniLM's, SmolLM2's from GGUF, stories15M's from llama2.c, GPT-2's."""

from pathlib import Path

import pytest
import tokenizers
from helpers.real_weights import real_weights
from helpers.token_reference import best_score_merge, byte_level_bpe, ranks_of, visible_bytes
from helpers.varied_texts import varied_texts
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from cutaway.checkpoints.gguf_file import GGUFFile
from cutaway.checkpoints.llama2c_file import Llama2cFile
from cutaway.tokens import Tokenizer, find_tokenizer, gguf_tokenizer, llama2c_tokenizer
from cutaway.tokens.trace import Tracer

TEXTS = varied_texts(300)
WITHOUT_DIGITS = [text for text in TEXTS if not any(character.isnumeric() for character in text)]


@pytest.fixture(scope="module")
def smollm2() -> tuple[Tokenizer, dict]:
    metadata = GGUFFile(real_weights("smollm2")).metadata
    return gguf_tokenizer(metadata), metadata


@pytest.fixture(scope="module")
def stories() -> Tokenizer:
    folder = real_weights("stories15m")
    n_tokens = Llama2cFile(folder / "stories15M.bin").config["vocab_size"]
    return llama2c_tokenizer((folder / "tokenizer.bin").read_bytes(), n_tokens)


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return Tokenizer.load(real_weights("gpt2-tokenizer"))


# --- MiniLM: WordPiece ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.txt"])
def test_minilm_is_transformers_in_both_of_its_forms(form: str, tmp_path: Path):
    folder = real_weights("minilm")
    peer = AutoTokenizer.from_pretrained(folder)
    for name in (form, "tokenizer_config.json"):
        (tmp_path / name).symlink_to(folder / name)
    ours = find_tokenizer(tmp_path)
    assert ours is not None
    assert ours.vocab_size == len(peer) == 30522
    for text in TEXTS:
        assert ours.encode(text) == peer.encode(text), text
        pair, peers = ours.encode_pair(text, "a second text"), peer(text, "a second text")
        assert (pair.ids, pair.segments) == (peers["input_ids"], peers["token_type_ids"])
        assert ours.encode_full(text).offsets == peer(text, return_offsets_mapping=True)["offset_mapping"]
    roles = {role: getattr(peer, f"{role}_token_id") for role in ("pad", "unk", "cls", "sep", "mask")}
    assert {role: getattr(ours, f"{role}_id") for role in roles} == roles
    assert ours.encode_batch(TEXTS) == peer(TEXTS)["input_ids"]


# --- SmolLM2: byte-level BPE from GGUF --------------------------------------------------------------------------------


def test_smollm2_is_transformers_where_transformers_is_right(smollm2: tuple[Tokenizer, dict]):
    """transformers' GGUF reader forgets to cut digits apart first, which shows where spaces stand before a number."""
    ours, _ = smollm2
    path = real_weights("smollm2")
    peer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in WITHOUT_DIGITS:
        assert ours.encode(text) == peer.encode(text), text
    gpt2_words = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    peer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, gpt2_words])
    for text in TEXTS:
        assert ours.encode(text) == peer.encode(text), text
        assert ours.decode(ours.encode(text)) == peer.decode(peer.encode(text))
    roles = {role: getattr(peer, f"{role}_token_id") for role in ("pad", "unk", "bos", "eos")}
    assert {role: getattr(ours, f"{role}_id") for role in roles} == roles


def test_smollm2_is_the_algorithm_written_out(smollm2: tuple[Tokenizer, dict]):
    ours, metadata = smollm2
    ids = {token: id for id, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    rank = ranks_of(metadata["tokenizer.ggml.merges"])
    for text in TEXTS:
        assert ours.encode(text) == byte_level_bpe(text, ids, rank, single_digits=True), text


@given(text=st.text())
def test_smollm2_gives_back_every_text_of_its_bytes(text: str, smollm2: tuple[Tokenizer, dict]):
    """Its vocabulary lacks 21 bytes (control characters, and starts of planes without letters), which it drops."""
    ours, _ = smollm2
    lacking = {byte for byte, character in visible_bytes().items() if character not in ours}
    assert len(lacking) == 21
    text = "".join(character for character in text if not lacking & set(character.encode()))
    assert ours.decode(ours.encode(text), skip_special=False) == text


# --- stories15M: SentencePiece's BPE from llama2.c --------------------------------------------------------------------


def test_stories15m_merges_as_llama2c_does(stories: Tokenizer):
    ids = {stories.token(id): id for id in range(stories.vocab_size)}
    data = (real_weights("stories15m") / "tokenizer.bin").read_bytes()
    scores, at = {}, 4
    for id in range(stories.vocab_size):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if id >= 259:
            scores[stories.token(id)] = float(memoryview(data)[at : at + 4].cast("f")[0])
        at += 8 + length
    runs = [character * n for character in "a -=.0\n*#e" for n in (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64)]
    for text in TEXTS + runs + ["banananana", "abababab", "-=-=-=-=", "Once upon a time, there was a little girl."]:
        assert stories.encode(text) == [1, *best_score_merge(text, scores, ids)], text


def test_stories15m_begins_as_every_story_does(stories: Tokenizer):
    assert stories.encode("Once upon a time") == [1, 9038, 2501, 263, 931]
    assert (stories.unk_id, stories.bos_id, stories.eos_id, stories.vocab_size) == (0, 1, 2, 32000)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_stories15m_gives_back_every_text(text: str, stories: Tokenizer):
    assume(not any(token in text for token in stories.special_ids()))
    assert stories.decode(stories.encode(text)) == text


# --- GPT-2: byte-level BPE --------------------------------------------------------------------------------------------


def test_gpt2_is_transformers(gpt2: Tokenizer):
    peer = AutoTokenizer.from_pretrained(real_weights("gpt2-tokenizer"))
    assert gpt2.encode("I ate an apple") == [40, 15063, 281, 17180]
    for text in TEXTS:
        assert gpt2.encode(text) == peer.encode(text), text
    assert gpt2.eos_id == gpt2.bos_id == 50256


@given(text=st.text())
def test_gpt2_gives_back_every_text(text: str, gpt2: Tokenizer):
    assert gpt2.decode(gpt2.encode(text), skip_special=False) == text


def test_what_is_saved_is_what_was_loaded(
    gpt2: Tokenizer, smollm2: tuple[Tokenizer, dict], stories: Tokenizer, tmp_path: Path
):
    for name, tokenizer in {"gpt2": gpt2, "smollm2": smollm2[0], "stories": stories}.items():
        tokenizer.save(tmp_path / name)
        again = Tokenizer.load(tmp_path / name)
        assert again.roles == tokenizer.roles
        assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


# --- how they cut, step by step ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["minilm", "smollm2", "stories", "gpt2"])
def test_the_last_step_of_the_trace_is_what_encode_gives(name: str, request: pytest.FixtureRequest):
    found = find_tokenizer(real_weights("minilm")) if name == "minilm" else request.getfixturevalue(name)
    tokenizer = found[0] if isinstance(found, tuple) else found
    tracer = Tracer(tokenizer)
    for text in TEXTS:
        assert tracer.trace(text).tokens == tokenizer.encode_full(text, special=False).tokens, text


def test_gpt2_merges_an_apple(gpt2: Tokenizer):
    first, *_, last = Tracer(gpt2).trace(" apple").words[0].steps
    assert (first.pieces, last.pieces) == (list("Ġapple"), ["Ġapple"])
    assert "".join(last.pair) == "Ġapple"
