"""`Tokenizer`: text to ids and back, special tokens by role, in and out of a folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from helpers.tokenizers_of_bytes import byte_level, words
from helpers.varied_texts import varied_texts
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, processors
from transformers import AutoTokenizer

from cutaway.errors import CheckpointError, InputError
from cutaway.tokens import Encoded, Tokenizer
from cutaway.tokens.pipeline import surround
from cutaway.tokens.tokenizer_training import train_tokenizer


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return byte_level()


def test_a_tokenizer_is_called_and_has_a_length_and_a_short_repr(small: Tokenizer):
    text = "I ate an apple"
    assert small(text) == small.encode(text)
    assert small(text, special=False) == small.encode(text, special=False) != small(text)
    assert len(small) == small.vocab_size == 1 + max(small.special_ids()["<eos>"], *small.backend.get_vocab().values())
    assert repr(small) == f"Tokenizer(BPE, vocab_size={len(small)})"
    assert repr(Tokenizer(words())) == "Tokenizer(WordLevel, vocab_size=5)"


def test_the_lectures_sentence_ends_with_eos():
    backend = words("<eos>")
    backend.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 5)])
    tokenizer = Tokenizer(backend)
    assert tokenizer.encode("I ate an apple") == [1, 2, 3, 4, 5]
    assert tokenizer.encode("I ate an apple", special=False) == [1, 2, 3, 4]
    assert [tokenizer.token(id) for id in tokenizer.encode("I ate an apple")] == ["I", "ate", "an", "apple", "<eos>"]
    assert tokenizer.decode([1, 2, 3, 4, 5]) == "I ate an apple"
    assert tokenizer.decode([1, 2, 3, 4, 5], skip_special=False) == "I ate an apple <eos>"


@given(text=st.text())
def test_bytes_come_back_exactly(text: str, small: Tokenizer):
    assert small.decode(small.encode(text, special=False), skip_special=False) == text


@given(texts=st.lists(st.text(max_size=20), max_size=5))
def test_a_batch_is_its_texts_one_by_one(texts: list[str], small: Tokenizer):
    assert small.encode_batch(texts) == [small.encode(text) for text in texts]


@given(text=st.text())
def test_every_id_is_in_the_vocabulary_and_every_place_in_the_text(text: str, small: Tokenizer):
    encoded = small.encode_full(text)
    assert isinstance(encoded, Encoded)
    assert encoded.ids == small.encode(text)
    assert all(0 <= id < small.vocab_size for id in encoded.ids)
    assert [small.token(id) for id in encoded.ids] == encoded.tokens
    assert [small.id(token) for token in encoded.tokens] == encoded.ids
    assert all(0 <= start <= stop <= len(text) for start, stop in encoded.offsets)
    inner = encoded.offsets[1:-1]
    assert {place for start, stop in inner for place in range(start, stop)} == set(range(len(text)))


def test_places_point_at_the_words(small: Tokenizer):
    encoded = small.encode_full("the fox 日本", special=False)
    assert encoded.offsets[0][0] == 0
    assert "".join("the fox 日本"[a:b] for a, b in dict.fromkeys(encoded.offsets)) == "the fox 日本"


def test_a_pair_has_two_segments(small: Tokenizer):
    encoded = small.encode_pair("a b", "c")
    a, b, c = small.encode("a b", special=False), [2], small.encode("c", special=False)
    assert encoded.ids == [1, *a, *b, *c, 2]
    assert encoded.segments == [0] * (len(a) + 2) + [1] * (len(c) + 1)
    assert small.encode_pair("a b", "c", special=False).ids == a + c


def test_ids_and_tokens_outside_the_vocabulary_are_told(small: Tokenizer):
    for id in (-1, small.vocab_size, 2**40):
        for call in (small.token, lambda id: small.decode([0, id])):
            with pytest.raises(InputError, match=f"token id {id} is outside the vocabulary 0 … {small.vocab_size - 1}"):
                call(id)
    with pytest.raises(InputError, match="no token 'zzz'"):
        small.id("zzz")
    assert "zzz" not in small
    assert "<eos>" in small


def test_text_with_an_unknown_word_and_no_token_for_it_is_told():
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="<unk>"))
    with pytest.raises(InputError, match=r"cannot take this input: .*Missing"):
        Tokenizer(backend).encode("b")


# --- special tokens and their roles -----------------------------------------------------------------------------------


def ids_by_role(tokenizer: Tokenizer) -> dict[str, int]:
    roles = ("pad", "bos", "eos", "unk", "mask", "cls", "sep")
    return {role: id for role in roles if (id := getattr(tokenizer, f"{role}_id")) is not None}


@pytest.mark.parametrize(
    ("special", "roles"),
    [
        ((), {}),
        (("<pad>", "<sos>", "<eos>", "<unk>"), {"pad": 5, "bos": 6, "eos": 7, "unk": 0}),
        (("[PAD]", "[CLS]", "[SEP]", "[MASK]"), {"pad": 5, "cls": 6, "sep": 7, "mask": 8}),
        (("<s>", "</s>", "<mask>"), {"bos": 5, "eos": 6, "mask": 7}),
        (("<|endoftext|>",), {"eos": 5}),
        (("<|begin_of_text|>", "<|end_of_text|>"), {"bos": 5, "eos": 6}),
    ],
)
def test_usual_names_have_their_usual_roles(special: tuple[str, ...], roles: dict[str, int]):
    tokenizer = Tokenizer(words(*special))
    assert ids_by_role(tokenizer) == roles
    assert set(tokenizer.special_ids()) == set(special)


def test_a_word_that_only_looks_special_has_no_role():
    backend = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "a": 1}, unk_token="a"))
    assert Tokenizer(backend).bos_id is None


def test_what_is_stated_wins_over_the_names():
    tokenizer = Tokenizer(words("<s>", "</s>", "<x>"), {"bos": "<x>", "cls": "<s>", "pad": "<absent>"})
    assert ids_by_role(tokenizer) == {"bos": 7, "eos": 6, "cls": 5}


@pytest.mark.parametrize("eos", ["<x>", {"content": "<x>", "lstrip": False}])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_roles_are_read_from_the_folder(tmp_path: Path, name: str, eos: object):
    words("<x>", "</s>").save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_text(json.dumps({"eos_token": eos, "bos_token": None, "pad_token": 5}))
    assert ids_by_role(Tokenizer.load(tmp_path)) == {"eos": 5}
    assert ids_by_role(Tokenizer.load(tmp_path / "tokenizer.json")) == {"eos": 5}


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_saved_tokenizer_is_the_same_here_and_in_transformers(tmp_path: Path, small: Tokenizer):
    small.save(tmp_path / "new" / "folder")
    again = Tokenizer.load(tmp_path / "new" / "folder")
    peer = AutoTokenizer.from_pretrained(tmp_path / "new" / "folder")
    assert again.roles == small.roles == {"pad": "<pad>", "bos": "<sos>", "eos": "<eos>"}
    assert (peer.pad_token_id, peer.bos_token_id, peer.eos_token_id) == (0, 1, 2)
    for text in varied_texts():
        assert again.encode(text) == small.encode(text) == peer.encode(text)
        assert again.decode(small.encode(text)) == peer.decode(peer.encode(text), skip_special_tokens=True)


def test_a_stated_role_survives_saving(tmp_path: Path):
    Tokenizer(words("<x>", "<s>"), {"eos": "<x>", "cls": "<s>"}).save(tmp_path)
    assert ids_by_role(Tokenizer.load(tmp_path)) == {"eos": 5, "cls": 6, "bos": 6}


def test_padding_and_cutting_in_the_file_are_not_silently_done(tmp_path: Path):
    backend = words("<pad>")
    backend.enable_truncation(2)
    backend.enable_padding(length=8, pad_id=5, pad_token="<pad>")
    backend.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.load(tmp_path).encode("I ate an apple") == [1, 2, 3, 4]


def test_ids_may_have_holes():
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a")))
    assert tokenizer.vocab_size == 8
    with pytest.raises(InputError, match="token id 3"):
        tokenizer.token(3)


def test_a_folder_without_a_tokenizer_is_told(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read: No such file"):
        Tokenizer.load(tmp_path)


def test_tokens_do_not_need_torch():
    code = "import sys, cutaway.tokens; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_published_tokenizer_says_what_a_text_begins_with() -> None:
    """SmolLM2's puts nothing before a text, llama2.c's a token that ends texts, too; ours leave it to the model."""

    def begins(start: str, put: bool, ends: tuple[int, ...] = ()) -> bool:
        tokenizer = train_tokenizer([], kind="byte", special=["<s>"])
        surround(tokenizer.backend, start if put else None, None)
        return tokenizer.begins_with(tokenizer.id(start), ends)

    ids = train_tokenizer([], kind="byte", special=["<s>"])
    assert not begins("<s>", put=False)
    assert begins("<s>", put=True)
    assert begins("<s>", put=True, ends=(ids.id("<s>"),))
    assert begins("<sos>", put=False)
    assert not begins("<sos>", put=False, ends=(ids.id("<sos>"),))
    assert not begins("<eos>", put=False)


def test_where_a_published_tokenizer_only_ends_texts_its_end_begins_none() -> None:
    """It says nothing of beginnings then: what also stands between two texts, by either's word, begins none."""
    tokenizer = train_tokenizer([], kind="byte", special=["<s>"])
    surround(tokenizer.backend, None, "<eos>")
    start, end = tokenizer.id("<s>"), tokenizer.id("<eos>")
    assert tokenizer.begins_with(start)
    assert not tokenizer.begins_with(start, [start])
    assert not tokenizer.begins_with(end)
    assert not tokenizer.begins_with(end, [start])


def test_the_highest_id_is_16777215(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever uses a vocabulary makes tables of its size."""
    assert Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 16_777_215}, unk_token="a"))).vocab_size == 1 << 24
    with pytest.raises(CheckpointError, match="a token has the id 16,777,216; at most 16,777,216 are supported"):
        Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 16_777_216}, unk_token="a")))
